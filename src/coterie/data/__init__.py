"""Data: a file or a named data set becomes `Interactions`.

Reading is here at once; what only some commands need is imported when it is first asked for.
"""

from typing import TYPE_CHECKING, Any

from coterie.data.catalogue import CATALOGUE
from coterie.data.dialect import parse_columns
from coterie.data.filters import filter_users
from coterie.data.interactions import Interactions
from coterie.data.load import load
from coterie.data.synthetic import synthetic

if TYPE_CHECKING:
    from coterie.data.fetching import fetch
    from coterie.data.inspection import inspect, render_inspection
    from coterie.data.prepared import convert

_LATER = {"fetch": "fetching", "inspect": "inspection", "render_inspection": "inspection", "convert": "prepared"}

__all__ = [
    "CATALOGUE",
    "Interactions",
    "convert",
    "fetch",
    "filter_users",
    "inspect",
    "load",
    "parse_columns",
    "render_inspection",
    "synthetic",
]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    function = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    globals()[name] = function
    return function
