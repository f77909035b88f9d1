"""The one exception a person should ever see: what came, what was expected, what to do."""

from __future__ import annotations


class CoterieError(Exception):
    """A mistake that can be mended by the reader of its message. The CLI prints it without a traceback."""


def unknown_name(kind: str, name: str, known: list[str]) -> CoterieError:
    """Answer an unknown name with the list of known ones, the nearest first."""
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return CoterieError(f"unknown {kind} {name!r}.{hint} Known: {', '.join(known)}.")
