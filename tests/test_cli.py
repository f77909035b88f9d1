"""The list of verbs: complete, and in the order in which somebody new meets them."""

from __future__ import annotations

from typer.main import get_command
from typer.testing import CliRunner

from coterie.cli import _VERBS, app


def test_help_lists_every_verb_once_below_what_one_wants_to_do() -> None:
    said = CliRunner().invoke(app, ["--help"]).output
    verbs = [verb for some in _VERBS.values() for verb in some]
    assert sorted(verbs) == sorted(get_command(app).commands)  # type: ignore[attr-defined]
    titles = [said.index(f" {title} ") for title in _VERBS]
    assert titles == sorted(titles)
    assert said.index("│ demo ") < said.index("│ run ") < said.index("│ recommend ") < said.index("│ federation ")
