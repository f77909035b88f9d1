"""Scores -> ranks -> metrics, and how far to believe them. Knows arrays only: no algorithm, no protocol."""
