"""Set-up of all tests: real data where it is at hand, and worlds small enough to see through."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"
if "COTERIE_DATA" not in os.environ and _BESIDE.is_dir():
    os.environ["COTERIE_DATA"] = str(_BESIDE)


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # once, before there are workers
        forget_kernels(Path(__file__).resolve().parents[1] / "src" / "coterie")


def forget_kernels(package: Path) -> int:
    """Drop compiled kernels older than any file kernels are written in, and say how many.

    Numba looks at a kernel's own file only: after a change of what it calls from another one the old code would be
    tested.
    """
    written = [file.stat().st_mtime for file in package.rglob("*.py") if "numba" in file.read_text()]
    old = [file for file in package.rglob("*.nbi") if file.stat().st_mtime < max(written)]
    for file in old:
        file.unlink(missing_ok=True)
    return len(old)


@pytest.fixture
def real_data() -> Path:
    """The folder of named data sets, or a skip that says how to have it."""
    folder = os.environ.get("COTERIE_DATA")
    if not folder:
        pytest.skip("COTERIE_DATA is not set: `coterie data fetch` brings the named data sets")
    if not Path(folder).is_dir():
        pytest.skip(f"COTERIE_DATA is {folder}, which is no folder")
    return Path(folder)
