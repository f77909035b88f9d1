"""Set-up of all tests: real data where it is at hand, and worlds small enough to see through."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"
if "COTERIE_DATA" not in os.environ and _BESIDE.is_dir():
    os.environ["COTERIE_DATA"] = str(_BESIDE)


@pytest.fixture
def real_data() -> Path:
    """The folder of named data sets, or a skip that says how to have it."""
    folder = os.environ.get("COTERIE_DATA")
    if not folder:
        pytest.skip("COTERIE_DATA is not set: `coterie data fetch` brings the named data sets")
    if not Path(folder).is_dir():
        pytest.skip(f"COTERIE_DATA is {folder}, which is no folder")
    return Path(folder)
