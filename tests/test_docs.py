"""The guides run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

GUIDES = Path(__file__).parents[1] / "docs" / "guides"
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
RUNNING = ["first-steps.md", "settings-and-papers.md", "reporting.md"]


@pytest.mark.parametrize("name", RUNNING)
def test_a_guide_runs_as_it_stands(name: str, tmp_path: Path) -> None:
    bin_folder = Path(sys.executable).parent
    surroundings = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}"}
    blocks = BLOCK.findall((GUIDES / name).read_text())
    assert blocks
    for language, code in blocks:
        words = ["bash", "-euo", "pipefail", "-c", code] if language == "sh" else [sys.executable, "-c", code]
        found = subprocess.run(words, cwd=tmp_path, env=surroundings, capture_output=True, text=True, timeout=300)
        assert found.returncode == 0, f"{code}\n{found.stdout}\n{found.stderr}"
