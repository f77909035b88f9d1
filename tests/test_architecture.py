"""The shape of the package: who may import whom, and that looking at it is quick."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import forget_kernels

SOURCE = Path(__file__).parents[1] / "src" / "coterie"

# A package imports only from those before it. What stands outside (errors, ragged, rng) may be used by all.
ORDER = [
    "data", "algorithms", "protocol", "engine", "privacy", "evaluate", "runs", "flower", "report", "web", "demo", "cli",
]  # fmt: skip
# Held-out items live in `protocol` alone, so what trains must not know it.
NEVER = {("algorithms", "data"), ("algorithms", "protocol"), ("engine", "protocol"), ("algorithms", "evaluate")}


def _layer(parts: tuple[str, ...]) -> str:
    """A federation keeps a run's record and checkpoints, so engine/flower stands above `runs`, unlike the simulator."""
    return "flower" if parts[:2] == ("engine", "flower") else parts[0]


def _package(module: str) -> str | None:
    parts = module.split(".")
    return _layer(tuple(parts[1:])) if parts[0] == "coterie" and len(parts) > 1 else None


def _imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def test_packages_import_only_downwards() -> None:
    wrong = []
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        mine = _layer(parts)
        if mine not in ORDER or path.name == "commands.py":  # a commands.py is part of the command line
            continue
        for module in _imports(path):
            other = _package(module)
            if other not in ORDER or other == mine:
                continue
            if ORDER.index(other) > ORDER.index(mine) or (mine, other) in NEVER:
                wrong.append(f"{path.relative_to(SOURCE)} imports {module}")
    assert not wrong, "\n".join(wrong)


def test_engines_name_no_algorithm() -> None:
    from coterie.algorithms import CATALOGUE

    files = {module.rsplit(".", 1)[1] for module, *_ in CATALOGUE.values()}
    for path in (SOURCE / "engine").rglob("*.py"):
        named = {module for module in _imports(path) if module.startswith("coterie.algorithms.")}
        assert not {module.split(".")[-1] for module in named} & files, path


def test_help_does_not_import_the_heavy_parts() -> None:
    code = (
        "import sys, coterie.cli; "
        "print([m for m in ('numba', 'polars', 'scipy', 'torch', 'plotly', 'flwr', 'pydantic') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_kernels_older_than_what_kernels_are_written_in_are_dropped(tmp_path: Path) -> None:
    calls, called, other = tmp_path / "calls.py", tmp_path / "called.py", tmp_path / "other.py"
    for file, text in ((calls, "from numba import njit"), (called, "from numba import njit"), (other, "import json")):
        file.write_text(text)
    kernel = tmp_path / "calls.f-1.py311.nbi"
    kernel.write_text("compiled")
    os.utime(kernel, (calls.stat().st_mtime + 1,) * 2)
    os.utime(other, (calls.stat().st_mtime + 2,) * 2)  # no kernel has anything from it
    assert forget_kernels(tmp_path) == 0 and kernel.exists()
    os.utime(called, (calls.stat().st_mtime + 2,) * 2)
    assert forget_kernels(tmp_path) == 1 and not kernel.exists()


def _kernels() -> dict[str, dict[str, ast.FunctionDef]]:
    """Compiled functions by module and name."""

    def compiled(node: ast.FunctionDef) -> bool:
        by = [one.func if isinstance(one, ast.Call) else one for one in node.decorator_list]
        return any(isinstance(one, ast.Name) and one.id == "njit" for one in by)

    found = {}
    for file in sorted(SOURCE.rglob("*.py")):
        module = ".".join(["coterie", *file.relative_to(SOURCE).with_suffix("").parts])
        functions = [node for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef)]
        found[module] = {node.name: node for node in functions if compiled(node)}
    return found


def _calls(
    module: str, kernel: ast.FunctionDef, kernels: dict[str, dict[str, ast.FunctionDef]]
) -> set[tuple[str, str]]:
    """Which compiled functions a compiled function calls: by name, or as an attribute of a module it imported."""
    tree = ast.parse((SOURCE / Path(*module.split(".")[1:])).with_suffix(".py").read_text())
    names = {name: (module, name) for name in kernels[module]}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("coterie"):
            for one in node.names:
                names[one.asname or one.name] = (node.module, one.name)
    found = set()
    for call in ast.walk(kernel):
        what = call.func if isinstance(call, ast.Call) else None
        if isinstance(what, ast.Name) and what.id in names:
            found.add(names[what.id])
        elif isinstance(what, ast.Attribute) and isinstance(what.value, ast.Name) and what.value.id in names:
            found.add((".".join(names[what.value.id]), what.attr))
    return {
        (where, name)
        for where, name in found
        if name in kernels.get(where, {}) and (where, name) != (module, kernel.name)
    }


def test_kernels_that_kernels_call_become_part_of_them() -> None:
    """Else which of two compiled copies runs depends on what was loaded before: docs/decisions/kernels.md."""
    kernels = _kernels()
    called = {
        one for module, mine in kernels.items() for node in mine.values() for one in _calls(module, node, kernels)
    }
    assert ("coterie.algorithms.factor_step", "step_rows") in called and ("coterie.rng", "stream") in called
    loose = []
    for module, name in sorted(called):
        (how,) = kernels[module][name].decorator_list
        said = {one.arg: one.value for one in how.keywords} if isinstance(how, ast.Call) else {}
        inline = said.get("forceinline")
        if not (isinstance(inline, ast.Constant) and inline.value is True):
            loose.append(f"{module}.{name}: @njit(..., forceinline=True)")
    assert not loose, "\n".join(loose)
