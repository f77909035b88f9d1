"""The catalogue: one line for each system. Adding one is one file and one line here."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from coterie.errors import CoterieError, unknown_name

# name -> module and class; modules are imported when asked for, so that `--help` stays quick
CATALOGUE: dict[str, tuple[str, str]] = {
    "mostpop": ("coterie.algorithms.central.mostpop", "MostPop"),
    "random": ("coterie.algorithms.central.random", "Random"),
    "ease": ("coterie.algorithms.central.ease", "EASE"),
    "fedmf": ("coterie.algorithms.fedmf", "FedMF"),
    "federank": ("coterie.algorithms.federank", "FedeRank"),
    "fedrap": ("coterie.algorithms.fedrap", "FedRAP"),
    "fedease": ("coterie.algorithms.fedease", "FedEASE"),
    "fedrecon": ("coterie.algorithms.fedrecon", "FedRecon"),
}


def algorithm_class(name: str) -> type[Any]:
    """The class of that name, or an error with the list of names."""
    if name not in CATALOGUE:
        raise unknown_name("algorithm", name, list(CATALOGUE))
    module, cls = CATALOGUE[name]
    found: type[Any] = getattr(import_module(module), cls)
    return found


def make(name: str, behaviour: str = "coterie", **settings: Any) -> Any:
    """An algorithm by name: the behaviour's settings first, then those given."""
    cls = algorithm_class(name)
    if behaviour not in cls.behaviours:
        raise unknown_name(f"behaviour of {name}", behaviour, list(cls.behaviours))
    known = list(cls.__dataclass_fields__)
    for field in settings:
        if field not in known:
            raise unknown_name(f"setting of {name}", field, known)
    try:
        return cls(**{**cls.behaviours[behaviour], **settings})
    except (TypeError, ValueError) as problem:
        raise CoterieError(f"{name}: {problem}") from problem
