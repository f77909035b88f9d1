"""The catalogue: one line for each system. Adding one is one file and one line here."""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module
from typing import Any

from coterie.errors import CoterieError, unknown_name

# name -> module and class, and, for a variant, the settings that make it one; modules are imported when asked for,
# so that `--help` stays quick
CATALOGUE: dict[str, tuple[str, str] | tuple[str, str, dict[str, Any]]] = {
    "mostpop": ("coterie.algorithms.central.mostpop", "MostPop"),
    "random": ("coterie.algorithms.central.random", "Random"),
    "ease": ("coterie.algorithms.central.ease", "EASE"),
    "userknn": ("coterie.algorithms.central.userknn", "UserKNN"),
    "itemknn": ("coterie.algorithms.central.itemknn", "ItemKNN"),
    "als": ("coterie.algorithms.central.als", "ALS"),
    "bpr": ("coterie.algorithms.central.bpr", "BPR"),
    "mf": ("coterie.algorithms.central.mf", "MF"),
    "ncf": ("coterie.algorithms.central.ncf", "NCF"),
    "lightgcn": ("coterie.algorithms.central.lightgcn", "LightGCN"),
    "sgl": ("coterie.algorithms.central.sgl", "SGL"),
    "multvae": ("coterie.algorithms.central.multvae", "MultVAE"),
    "centrap": ("coterie.algorithms.central.centrap", "CentRAP"),
    "fedmf": ("coterie.algorithms.fedmf", "FedMF"),
    "fcf": ("coterie.algorithms.fcf", "FCF"),
    "federank": ("coterie.algorithms.federank", "FedeRank"),
    "fedrap": ("coterie.algorithms.fedrap", "FedRAP"),
    "fedrap-c": ("coterie.algorithms.fedrap", "FedRAP", {"private": False}),
    "fedrap-d": ("coterie.algorithms.fedrap", "FedRAP", {"shared": False}),
    "fedrap-no": ("coterie.algorithms.fedrap", "FedRAP", {"sparse": 0.0, "penalty": "none"}),
    "fedrap-l2": ("coterie.algorithms.fedrap", "FedRAP", {"penalty": "l2"}),
    "fedrap-fixed": ("coterie.algorithms.fedrap", "FedRAP", {"curriculum": "fixed"}),
    "fedrap-sin": ("coterie.algorithms.fedrap", "FedRAP", {"curriculum": "sin"}),
    "fedrap-square": ("coterie.algorithms.fedrap", "FedRAP", {"curriculum": "square"}),
    "fedrap-frac": ("coterie.algorithms.fedrap", "FedRAP", {"curriculum": "frac"}),
    "pfedrec": ("coterie.algorithms.pfedrec", "PFedRec"),
    "fedncf": ("coterie.algorithms.fedncf", "FedNCF"),
    "gpfedrec": ("coterie.algorithms.gpfedrec", "GPFedRec"),
    "light-gpfedrec": ("coterie.algorithms.gpfedrec", "GPFedRec", {"interval": 10}),
    "gpfedrec-psf": ("coterie.algorithms.gpfedrec", "GPFedRec", {"reg": 0.0, "shared": "mean"}),
    "gpfedrec-psf-init": ("coterie.algorithms.gpfedrec", "GPFedRec", {"reg": 0.0, "shared": "mean-view"}),
    "gpfedrec-psf-reg": ("coterie.algorithms.gpfedrec", "GPFedRec", {"shared": "mean"}),
    "graphagg": ("coterie.algorithms.graphagg", "GraphAgg"),
    "fedease": ("coterie.algorithms.fedease", "FedEASE"),
    "fedrecon": ("coterie.algorithms.fedrecon", "FedRecon"),
    "metamf": ("coterie.algorithms.metamf", "MetaMF"),
    "fedlightgcn": ("coterie.algorithms.fedlightgcn", "FedLightGCN"),
    "fedpergnn": ("coterie.algorithms.fedpergnn", "FedPerGNN"),
}


def algorithm_class(name: str) -> type[Any]:
    """The class of that name, or an error with the list of names."""
    if name not in CATALOGUE:
        raise unknown_name("algorithm", name, list(CATALOGUE))
    module, cls, *_ = CATALOGUE[name]
    found: type[Any] = getattr(import_module(module), cls)
    return found


def settings_of(cls: type[Any]) -> list[str]:
    """The names of a system's settings."""
    return [one.name for one in fields(cls)]  # without what belongs to the class: its name, its citation, ...


def presets(name: str) -> dict[str, Any]:
    """The settings that make a variant of a system; empty for the system itself."""
    entry = CATALOGUE[name]
    return entry[2] if len(entry) == 3 else {}


def make(name: str, behaviour: str = "coterie", **settings: Any) -> Any:
    """An algorithm by name: the behaviour's settings first, then the variant's, then those given."""
    cls = algorithm_class(name)
    if behaviour not in cls.behaviours:
        raise unknown_name(f"behaviour of {name}", behaviour, list(cls.behaviours))
    known = settings_of(cls)
    for field in settings:
        if field not in known:
            raise unknown_name(f"setting of {name}", field, known)
    try:
        return cls(**{**cls.behaviours[behaviour], **presets(name), **settings})
    except (TypeError, ValueError) as problem:
        raise CoterieError(f"{name}: {problem}") from problem
