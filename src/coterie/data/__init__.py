"""Data: a file or a named data set becomes `Interactions`."""

from coterie.data.filters import filter_users
from coterie.data.interactions import Interactions
from coterie.data.load import load
from coterie.data.synthetic import synthetic

__all__ = ["Interactions", "filter_users", "load", "synthetic"]
