"""Systems that see everybody's history: the yardstick no federated number should stand without."""
