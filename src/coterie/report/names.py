"""A name for each row of a comparison: the system, and where that does not tell two rows apart, what does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_SAID = ("algorithm", "behaviour", "exchange", "data", "protocol")  # in the name already, or told beside it


def label(row: Mapping[str, Any]) -> str:
    """The system as one says it: `fedrap as_released local-only`."""
    parts = [row["algorithm"]]
    if row["behaviour"] != "coterie":
        parts.append(row["behaviour"])
    if row["exchange"] != "full":
        parts.append(row["exchange"])
    return " ".join(parts)


def names(rows: Sequence[Mapping[str, Any]], said: Sequence[Mapping[str, Any]]) -> list[str]:
    """A name for each row, no two alike; `said` are the specs behind them."""
    several_data = len({row["data_sha256"] for row in rows}) > 1
    plain = []
    for row in rows:
        name = label(row)
        if row["protocol"] != "clean":
            name += f" [{row['protocol']}]"
        plain.append(f"{name} on {row['data']}" if several_data else name)
    found = list(plain)
    for name in set(plain):
        alike = [k for k, other in enumerate(plain) if other == name]
        if len(alike) < 2:
            continue
        flat = {k: dict(_flat(said[k])) for k in alike}
        every = list(dict.fromkeys(key for k in alike for key in flat[k]))
        differing = [key for key in every if len({str(flat[k].get(key)) for k in alike}) > 1]
        told = [key for key in differing if key.split(".")[0] not in _SAID[:3]] or differing
        for k in alike:
            words = [word for key in told[:5] if (word := _worded(key, flat[k].get(key)))]
            found[k] = f"{name} ({', '.join(words)})" if words else name
    for k, name in enumerate(found):  # more than four differences, the telling one beyond them
        if found.index(name) != k:
            found[k] = f"{name} #{found[: k + 1].count(name)}"
    return found


def _flat(said: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Nested specs as `settings.dim` -> 32; what was done to uploads stays in one piece."""
    if isinstance(said, Mapping) and before != "privacy":
        for key, value in said.items():
            yield from _flat(value, f"{before}.{key}" if before else str(key))
    else:
        yield before, said


def _worded(key: str, value: Any) -> str:
    if key == "data.sha256":
        return f"data {str(value)[:8]}"
    if key == "privacy":
        return _guarded(value or {})
    if key.startswith("continued"):
        return f"continued from {value}" if key == "continued.from" else ""
    if isinstance(value, float):
        value = f"{value:.4g}"
    return f"{key.removeprefix('settings.').removeprefix('protocol.')}={value}"


def _guarded(said: Mapping[str, Any]) -> str:
    """What happens to uploads on their way, in a few words; nothing for nothing."""
    words = []
    if said.get("mechanism", "none") != "none":
        words.append(f"{said['mechanism']} noise {said['noise']:.3g}" if said.get("noise") else said["mechanism"])
        if said.get("clip"):
            words.append(f"clip {said['clip']:g}")
    elif said.get("clip"):
        words.append(f"clip {said['clip']:g}")
    for field, word in (("secure_sum", "secure sum"), ("encrypted", "encrypted"), ("record_view", "view recorded")):
        words += [word] if said.get(field) else []
    for field in ("bits", "send_rows", "norm_bound"):
        words += [f"{field}={said[field]}"] if said.get(field) is not None else []
    if said.get("robust", "none") != "none":
        words.append(said["robust"])
    return " ".join(words)
