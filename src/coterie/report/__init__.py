"""Records -> tables, figures and pages. `coterie.report(runs, "report.html")` calls the package itself.

The sentence of the Python interface and the folder have the same name, so the module is made callable: importing
anything from this package puts it in the place of a function of that name.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any


class _Report(ModuleType):
    def __call__(self, runs: Any, path: str | Path = "report.html", **options: Any) -> Path:
        """One self-contained HTML page about these runs: see `coterie.report.html.report`."""
        from coterie.report.html import report

        return report(runs, path, **options)


sys.modules[__name__].__class__ = _Report
