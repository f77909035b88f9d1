"""What there is: the systems, and the settings of one, read off the classes themselves."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from typing import Any

from coterie.algorithms import CATALOGUE, algorithm_class, make, presets


def describe(name: str) -> dict[str, Any]:
    """One system as data: citation, what it sends, behaviours, settings with default and meaning."""
    cls = algorithm_class(name)
    meanings = field_comments(cls)
    return {
        "name": name,
        "about": (inspect.getmodule(cls).__doc__ or "").strip(),  # type: ignore[union-attr]
        "citation": cls.citation,
        "sends": make(name).sends,
        "behaviours": {behaviour: {**fields, **presets(name)} for behaviour, fields in cls.behaviours.items()},
        "settings": {
            field.name: {"type": str(field.type), "default": field.default, "meaning": meanings.get(field.name, "")}
            for field in dataclasses.fields(cls)
        },
    }


def field_comments(cls: type[Any]) -> dict[str, str]:
    """The comment beside each field: stated once, in the class, and shown everywhere."""
    pattern = re.compile(r"^\s+(\w+): [^=]+= .*?# (.+)$", re.MULTILINE)
    return {match[1]: match[2] for match in pattern.finditer(inspect.getsource(cls))}


def catalogue(as_json: bool = False) -> Any:
    rows = [describe(name) for name in CATALOGUE]
    if as_json:
        return json.dumps(rows, indent=1)
    from rich.table import Table

    table = Table(title="systems", title_justify="left")
    for heading in ("name", "what a person's device sends to the server", "behaviours", "source"):
        table.add_column(heading)
    for row in rows:
        table.add_row(row["name"], row["sends"], ", ".join(row["behaviours"]), row["citation"])
    return table


def one_system(name: str, as_json: bool = False) -> Any:
    found = describe(name)
    if as_json:
        return json.dumps(found, indent=1)
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(title=f"settings of {name} (--set field=value)", title_justify="left")
    table.add_column("field")
    for behaviour in found["behaviours"]:
        table.add_column(behaviour)
    table.add_column("meaning")
    for field, about in found["settings"].items():
        values = [str(fields.get(field, about["default"])) for fields in found["behaviours"].values()]
        table.add_row(field, *values, about["meaning"])
    return Group(Text(found["about"]), Text(f"\nsends: {found['sends']}\n"), table)
