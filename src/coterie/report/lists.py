"""Recommendations as a table in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coterie.runs.run import Recommendation


def recommendations(title: str, picked: Sequence[Recommendation]) -> Any:
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    table.add_column("", justify="right")
    table.add_column("item")
    table.add_column("title")
    table.add_column("score", justify="right")
    for place, one in enumerate(picked, 1):
        table.add_row(str(place), one.item_id, one.title, f"{one.score:.3f}")
    return table
