"""What makes two runs the same: the spec, the data's hash, and the code of the algorithm."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import platform
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from coterie import __version__
from coterie.algorithms import CATALOGUE, algorithm_class
from coterie.runs.spec import RunSpec

_CODE = ("coterie.algorithms", "coterie.rng", "coterie.ragged")  # what an algorithm may be made of


def run_key(spec: RunSpec, data_sha256: str) -> str:
    """Equal for runs that must give equal numbers; where the data lies and what is kept of a run do not matter."""
    said = spec.resolved().model_dump(mode="json", exclude={"data", "checkpoint_every", "keep"})
    data = spec.data.model_dump(mode="json", include={"also", "without", "sharing"})
    key = [said, data, data_sha256, algorithm_version(spec.algorithm)]
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]


def question_key(spec: RunSpec) -> str:
    """What a run was asked for, whatever it was called: equal for equal settings of the same class on the same data.

    Unlike `run_key` it says nothing about the code that answered.
    """
    resolved = spec.resolved()
    said = resolved.model_dump(
        mode="json", exclude={"algorithm", "behaviour", "data", "checkpoint_every", "keep", "continued"}
    )
    data = spec.data.model_dump(mode="json", include={"also", "without", "sharing", "sha256"})
    key = [CATALOGUE[spec.algorithm][:2], said, data]
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]


def algorithm_version(name: str) -> str:
    """The package's version and a hash of the code the algorithm is made of, comments and docstrings aside."""
    algorithm_class(name)  # or an answer with the list of names
    return f"{__version__}+{_code_hash(CATALOGUE[name][0])}"


@cache
def _code_hash(module: str) -> str:
    digest, todo, seen = hashlib.sha256(), [module], set()
    while todo:
        one = todo.pop()
        if one in seen:
            continue
        seen.add(one)
        place = _file(one)
        if place is not None:
            todo += sorted(_imported(ast.parse(place.read_text())))
    for one in sorted(seen):
        place = _file(one)
        if place is not None:
            digest.update(f"{one}\n{_bare(ast.parse(place.read_text()))}\n".encode())
    return digest.hexdigest()[:10]


def _file(module: str) -> Path | None:
    if module == "coterie.algorithms":  # the catalogue: adding a system does not change the others
        return None
    found = find_spec(module)
    return None if found is None or found.origin is None else Path(found.origin)


def _imported(tree: ast.AST) -> set[str]:
    """Modules of ours that this one is made of."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            if node.module.startswith("coterie.algorithms"):
                found |= {name for alias in node.names if _is_module(name := f"{node.module}.{alias.name}")}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name for name in found if name.startswith(_CODE)}


def _is_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _bare(tree: ast.Module) -> str:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def hardware() -> dict[str, Any]:
    """What the seconds in a record were measured on."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if "model name" in line]
        model = lines[0] if lines else model
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
    }


def available_cores() -> int:
    """The cores this process may use, which may be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
