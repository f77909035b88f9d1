"""Rows that cannot be read: collected with their place, told to the reader, or set aside in a file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from coterie.errors import CoterieError

SHOWN = 20  # problems spelled out in one message; the rest are counted


class Complaint(NamedTuple):
    """What a value should have been, and how to mend it."""

    expected: str
    mend: str


class Problem(NamedTuple):
    """One row that cannot be read. `column` is the number of the field, from 1, as in `--columns`."""

    line: int
    column: int
    what: str  # "rating 'five'"
    complaint: Complaint

    def told(self, file: str) -> str:
        expected, mend = self.complaint
        return f"{file}:{self.line}:{self.column}: {self.what}, expected {expected}; {mend}"


def shown(value: str, width: int = 60) -> str:
    """A value as it may stand in a message: quoted, escaped, cut."""
    return repr(value if len(value) <= width else value[: width - 1] + "…")


@dataclass
class Problems:
    """Every problem of one file: the first few are kept, all are counted, and set aside if that was asked for."""

    file: str
    quarantine: Path | None  # None: strict
    total: int = 0
    first: list[Problem] = field(default_factory=list)
    rejects: list[str] = field(default_factory=list)  # lines of the quarantine file

    def add(self, problem: Problem, raw: str) -> None:
        self.total += 1
        if len(self.first) < SHOWN:
            self.first.append(problem)
        if self.quarantine is not None:
            reason = f"{problem.what}, expected {problem.complaint.expected}"
            cells = (str(problem.line), str(problem.column), reason, raw)
            self.rejects.append("\t".join(_cell(cell) for cell in cells))

    def message(self) -> str:
        lines = [problem.told(self.file) for problem in self.first]
        if self.total > len(lines):
            lines.append(f"... and {self.total - len(lines)} more")
        rows = "1 row" if self.total == 1 else f"{self.total:,} rows"
        lines.append(
            f"{rows} of {self.file} cannot be read. Mend them, or read the others and set these aside with "
            f'--on-bad-row quarantine (on_bad_row="quarantine").'
        )
        return "\n".join(lines)

    def settle(self) -> None:
        """Strict: refuse the file. Otherwise write the rejects beside their reasons."""
        if not self.total:
            return
        if self.quarantine is None:
            raise CoterieError(self.message())
        text = "line\tcolumn\treason\trow\n" + "".join(line + "\n" for line in self.rejects)
        try:
            self.quarantine.parent.mkdir(parents=True, exist_ok=True)
            self.quarantine.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")
        except OSError as error:
            raise CoterieError(
                f"{self.quarantine}: the rejected rows cannot be written there ({error.strerror}); "
                f"name another file with --quarantine."
            ) from None


def _cell(text: str) -> str:
    """A cell of the quarantine file: backslash, tab, and line ends are escaped, so that one reject is one line."""
    return (
        text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r").replace("\0", "\\0")
    )
