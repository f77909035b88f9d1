"""Recommendations learnt from people's histories without collecting them.

data = coterie.load("ml-100k")
run = coterie.run(coterie.FedRAP(dim=32), data, rounds=100, seed=0)
run.recommend("196", n=10)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from coterie.algorithms.central.als import ALS
    from coterie.algorithms.central.bpr import BPR
    from coterie.algorithms.central.ease import EASE
    from coterie.algorithms.central.itemknn import ItemKNN
    from coterie.algorithms.central.lightgcn import LightGCN
    from coterie.algorithms.central.mf import MF
    from coterie.algorithms.central.mostpop import MostPop
    from coterie.algorithms.central.multvae import MultVAE
    from coterie.algorithms.central.ncf import NCF
    from coterie.algorithms.central.random import Random
    from coterie.algorithms.central.sgl import SGL
    from coterie.algorithms.central.userknn import UserKNN
    from coterie.algorithms.fcf import FCF
    from coterie.algorithms.federank import FedeRank
    from coterie.algorithms.fedmf import FedMF
    from coterie.algorithms.fedrap import FedRAP
    from coterie.data import Interactions, load, synthetic
    from coterie.errors import CoterieError
    from coterie.report.compare import compare
    from coterie.report.html import report
    from coterie.report.reproduce import reproduce
    from coterie.report.sweep import sweep
    from coterie.runs.api import open, resume, run
    from coterie.runs.continuing import continue_run
    from coterie.runs.run import Run
    from coterie.sharing import choose

_PLACES = {
    "CoterieError": "coterie.errors",
    "Interactions": "coterie.data",
    "Run": "coterie.runs.run",
    "choose": "coterie.sharing",
    "compare": "coterie.report.compare",
    "continue_run": "coterie.runs.continuing",
    "load": "coterie.data",
    "open": "coterie.runs.api",
    "report": "coterie.report.html",
    "reproduce": "coterie.report.reproduce",
    "resume": "coterie.runs.api",
    "run": "coterie.runs.api",
    "sweep": "coterie.report.sweep",
    "synthetic": "coterie.data",
}

__all__ = [
    "ALS", "BPR", "EASE", "FCF", "MF", "NCF", "SGL", "CoterieError", "FedMF", "FedRAP", "FedeRank", "Interactions",
    "ItemKNN", "LightGCN", "MostPop", "MultVAE", "Random", "Run", "UserKNN", "choose", "compare", "continue_run",
    "load", "open", "report", "reproduce", "resume", "run", "sweep", "synthetic",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import on first use: `coterie --help` must not wait for a compiler."""
    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    from coterie.algorithms import CATALOGUE

    for module, cls, *_ in CATALOGUE.values():
        if cls == name:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'coterie' has no attribute {name!r}")
