"""Where the real data sets are, for the tests that need them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture
def real_data() -> Path:
    folder = os.environ.get("COTERIE_DATA")
    if not folder:
        pytest.skip("COTERIE_DATA is not set: the real data sets are not here")
    return Path(folder)
