"""Engines run an algorithm's rounds; none of them names an algorithm."""
