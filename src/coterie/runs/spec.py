"""A run, said completely: from its spec and its data the same bytes come out again."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from coterie.algorithms import CATALOGUE, algorithm_class, make, presets, settings_of
from coterie.data.interactions import Interactions
from coterie.engine.exchange import Exchange, with_exchange
from coterie.errors import CoterieError
from coterie.privacy.spec import PrivacySpec
from coterie.protocol.rules import Protocol


class DataSpec(BaseModel):
    """Where the interactions came from, and their hash, so that a changed file is noticed."""

    model_config = ConfigDict(extra="forbid")

    source: str | None  # a name or a path; None: handed over in memory, so it must be handed over again
    also: list[str] = Field(default_factory=list)  # what came later, in a run that was continued
    without: list[str] = Field(default_factory=list)  # users left out: they asked to be forgotten
    columns: dict[str, str] | None = None
    sharing: str | None = None  # a table of what people chose to share (user_id, pi; item_id, never_share)
    data_dir: str | None = None
    on_bad_row: Literal["error", "quarantine"] = "error"
    sha256: str | None = None


class RunSpec(BaseModel):
    model_config = ConfigDict(extra="forbid")

    algorithm: str
    behaviour: str = "coterie"
    settings: dict[str, Any] = Field(default_factory=dict)  # the algorithm's fields; all of them once resolved
    data: DataSpec
    protocol: Protocol = Protocol()
    rounds: int | None = Field(default=None, ge=1)  # None: the algorithm's default
    evaluate_every: int = Field(default=5, ge=1)
    cohort: float | int | None = None  # share (a float in (0, 1]) or number of clients in an exchange; None: default
    exchange: Exchange = "full"  # or local-only: each client alone; or server-only: no private item tables
    dropout: float = Field(default=0.0, ge=0.0, lt=1.0)  # share of the cohort that drops out, simulated
    privacy: PrivacySpec | None = None  # what happens to uploads on their way; None: nothing
    seed: int = Field(default=0, ge=0)
    checkpoint_every: int = Field(default=10, ge=1)
    continued: dict[str, Any] | None = None  # of a continued run: from which, after which round, what is new
    # What stays on disk of a finished run beside its record; history: every checkpoint on the way too, to replay from.
    keep: Literal["all", "history", "model", "nothing"] = "all"

    def build(self) -> Any:
        algorithm = make(self.algorithm, self.behaviour, **self.settings)
        return with_exchange(algorithm, self.exchange, self.rounds)

    def resolved(self) -> RunSpec:
        """Every default written out, so that the record does not depend on a later version's defaults."""
        algorithm = make(self.algorithm, self.behaviour, **self.settings)
        exchanging = with_exchange(algorithm, self.exchange)  # or refuse
        rounds = self.rounds if self.rounds is not None else algorithm.default_rounds
        cohort = self.cohort if self.cohort is not None else algorithm.default_cohort
        privacy = None
        if self.privacy is not None and self.privacy.active:
            self.privacy.check(exchanging, cohort)
            privacy = self.privacy.resolved(rounds)
        return self.model_copy(
            update={"settings": asdict(algorithm), "rounds": rounds, "cohort": cohort, "privacy": privacy}
        )


def spec_of(algorithm: Any, data: Interactions, **options: Any) -> RunSpec:
    """The spec of an algorithm object on loaded data: the Python way in."""
    source = data.notes.get("source")
    where = DataSpec(
        source=None if source is None else str(source),
        columns=data.notes.get("columns"),  # type: ignore[arg-type]
        sharing=data.notes.get("sharing"),  # type: ignore[arg-type]
        data_dir=data.notes.get("data_dir"),  # type: ignore[arg-type]
        sha256=data.sha256,
    )
    name, behaviour = nearest(algorithm)
    return RunSpec(algorithm=name, behaviour=behaviour, settings=asdict(algorithm), data=where, **options)


def nearest(algorithm: Any) -> tuple[str, str]:
    """The catalogue's name and behaviour with the fewest settings that differ: how a record calls an object."""
    mine, cls = asdict(algorithm), type(algorithm)

    def differing(name: str, behaviour: str) -> int:
        theirs = {**cls.behaviours[behaviour], **presets(name)}
        return sum(theirs.get(field.name, field.default) != mine[field.name] for field in fields(cls))

    known = [name for name, entry in CATALOGUE.items() if entry[:2] == (cls.__module__, cls.__name__)]
    if not known:  # somebody's own system
        return algorithm.name, "coterie"
    return min(((name, one) for name in known for one in cls.behaviours), key=lambda which: differing(*which))


def read_spec(path: Path) -> RunSpec:
    """A spec file, with errors that name the key."""
    try:
        raw = json.loads(path.read_text())
        if isinstance(raw, dict):  # a run's own spec.json also says who wrote it
            raw = {key: value for key, value in raw.items() if key not in ("format", "coterie")}
        return RunSpec.model_validate(raw)
    except FileNotFoundError:
        raise CoterieError(f"{path}: no such spec file; `coterie run --help` lists the flags to use instead") from None
    except json.JSONDecodeError as problem:
        raise CoterieError(f"{path}:{problem.lineno}:{problem.colno}: not JSON: {problem.msg}") from None
    except ValidationError as problem:
        raise CoterieError(f"{path}: {explain(problem)}") from None


def explain(problem: ValidationError) -> str:
    """Pydantic's findings as sentences: key, what came, what was expected."""
    lines = []
    for one in problem.errors():
        key = ".".join(str(part) for part in one["loc"])
        lines.append(f"{key}: got {one['input']!r}; {one['msg'][0].lower()}{one['msg'][1:]}")
    return "; ".join(lines)


def parse_setting(algorithm: str, text: str) -> tuple[str, Any]:
    """`field=value` from the command line, read by the field's type."""
    from coterie.errors import unknown_name

    field, equals, value = text.partition("=")
    cls = algorithm_class(algorithm)
    known = settings_of(cls)
    if not equals:
        raise CoterieError(f"--set {text!r}: expected field=value, for example --set {next(iter(known), 'field')}=1")
    if field not in known:
        raise unknown_name(f"setting of {algorithm}", field, known)
    from pydantic import TypeAdapter

    hints = _hints(cls)
    try:
        return field, TypeAdapter(hints[field]).validate_python(value)
    except ValidationError as problem:
        wanted = [one["msg"].removeprefix("Input should be ") for one in problem.errors()]  # one for each type
        raise CoterieError(f"--set {field}={value}: expected {'; or '.join(dict.fromkeys(wanted))}") from None


def _hints(cls: type[Any]) -> dict[str, Any]:
    from typing import get_type_hints

    return get_type_hints(cls)
