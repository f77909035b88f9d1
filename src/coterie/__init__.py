"""Recommendations learnt from people's histories without collecting them."""
