"""Shows that a change of an algorithm's code changed no figure: the same runs by both, their last states compared.

    python -m benchmarks.same_bytes gpfedrec --before REVISION

Rows of the paper's records (papers/NAME/*.json) that the former code made are drawn evenly, and a few rounds of each
are run by the former code, checked out beside this one, and by this one. Where all bytes are equal that is written to
papers/NAME/same-bytes.json, and `coterie reproduce --add-seeds` adds seeds to the former code's rows: a faster kernel
then costs no run its place. Of an algorithm where one differs nothing is written.

With --without-unit both are run as on a processor without a matrix unit (algorithms/amx.py). A code that uses it now
and did not before rounds otherwise where there is one, as any code does on another machine; all else can be shown so.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llvmlite import binding

from coterie.report.measured import SAME_BYTES, brought_up, same_bytes
from coterie.runs import tensors
from coterie.runs.identity import hardware

ROOT = Path(__file__).parents[1]


def without_unit() -> dict[str, str]:
    """Settings of Numba by which kernels are made for this processor as if it had no matrix unit."""
    features = binding.get_host_cpu_features()
    kept = {name: has and not name.startswith("amx") for name, has in features.items()}
    said = ",".join(("+" if has else "-") + name for name, has in sorted(kept.items()))
    return {"NUMBA_CPU_NAME": binding.get_host_cpu_name(), "NUMBA_CPU_FEATURES": said}


def _python(tree: Path, *words: str) -> str:
    """What Python says when the package is that of `tree`."""
    env = {**os.environ, "PYTHONPATH": str(tree / "src")}
    done = subprocess.run([sys.executable, *words], env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{tree}: python {' '.join(words)}\n{done.stderr}")
    return done.stdout.strip()


def _version(tree: Path, algorithm: str) -> str:
    said = f"from coterie.runs.identity import algorithm_version as v; print(v({algorithm!r}))"
    return _python(tree, "-c", said)


def _meant(tree: Path, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All settings these rows stand for, those left to their defaults among them."""
    said = (
        "import dataclasses, json, sys; from coterie.algorithms import make; "
        "print(json.dumps([dataclasses.asdict(make(a, b, **c)) for a, b, c in json.loads(sys.argv[1])]))"
    )
    asked = [[row["algorithm"], row["behaviour"], row["settings"]] for row in rows]
    found: list[dict[str, Any]] = json.loads(_python(tree, "-c", said, json.dumps(asked)))
    return found


def _same_meaning(rows: list[tuple[str, dict[str, Any]]], before: Path, now: Path) -> None:
    """A default that is another one now makes the rows that leave it open other rows."""
    mine = [row for _, row in rows]
    for (data, row), former, present in zip(rows, _meant(before, mine), _meant(now, mine), strict=True):
        shared = [name for name in former if name in present]
        other = [f"{name} {former[name]} -> {present[name]}" for name in shared if former[name] != present[name]]
        if other:
            sys.exit(
                f"{row['algorithm']}: {data}, {row['entry']}, {row['row']} [{row['protocol']}] means other settings "
                f"now: {', '.join(other)}; take it out of {data}.json, since it has to be run anew, and ask again"
            )


def _kernels() -> int:
    """How many compiled kernels there are, where a place of their own was given."""
    place = os.environ.get("NUMBA_CACHE_DIR")
    return len(list(Path(place).rglob("*.nbc"))) if place else 0


def _state(tree: Path, data: str, row: Mapping[str, Any], rounds: int) -> str:
    """The hash of everything the server and the clients hold after so many rounds, of a run that compiled nothing.

    Before docs/decisions/kernels.md a process that compiled could round otherwise than all later ones.
    """
    before = _kernels()
    found = _run(tree, data, row, rounds)
    return _run(tree, data, row, rounds) if _kernels() > before else found


def _run(tree: Path, data: str, row: Mapping[str, Any], rounds: int) -> str:
    """The hash of everything the server and the clients hold after so many rounds."""
    with tempfile.TemporaryDirectory() as place:
        words = [
            "run", "--quiet", "--data", data, "--algorithm", row["algorithm"], "--behaviour", row["behaviour"],
            "--protocol", row["rules"], "--rounds", str(rounds), "--evaluate-every", str(rounds), "--threads", "1",
            "--seed", str(row["seeds"][0]), "--out", f"{place}/run",
        ]  # fmt: skip
        for name, value in row["settings"].items():
            words += ["--set", f"{name}={value}"]
        _python(tree, "-c", "from coterie.cli import main; main()", *words)
        summary = json.loads(Path(place, "run", "summary.json").read_text())
        return str(summary["last_model_sha256"])


def compare(records: Path, before: Path, now: Path, rounds: int, most: int) -> tuple[list[dict[str, Any]], list[str]]:
    """For each algorithm whose code is another one in the tree `now`: both versions, and the hashes they share.

    Beside them the names of those that do not share all.
    """
    rows: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    same = same_bytes(records)  # what was shown before: those rows count as the former code's too
    for file in sorted(records.glob("*.json")):
        record = json.loads(file.read_text())
        for row in record.get("cells", []):
            if row["privacy"] is None and row["values"] is not None:
                rows.setdefault(row["algorithm"], []).append((record["data"], brought_up(row, same)))
    found: list[dict[str, Any]] = []
    others: list[str] = []
    for algorithm, mine in sorted(rows.items()):
        versions = _version(before, algorithm), _version(now, algorithm)
        made = [one for one in mine if one[1]["version"] == versions[0]]
        if versions[0] == versions[1] or not made:
            continue
        _same_meaning(made, before, now)
        shown = []
        for at in range(0, len(made), -(-len(made) // most)):
            data, row = made[at]
            hashes = [_state(tree, data, row, rounds) for tree in (before, now)]
            said = f"{algorithm}: {data}, {row['entry']}, {row['row']} [{row['protocol']}]"
            print(f"{said}: {'the same bytes' if hashes[0] == hashes[1] else 'DIFFERENT'}", flush=True)
            if hashes[0] != hashes[1]:
                others.append(algorithm)
                break
            shown.append({"data": data, "row": row["row"], "protocol": row["protocol"], "sha256": hashes[0]})
        else:
            found.append(
                {"algorithm": algorithm, "before": versions[0], "now": versions[1], "rounds": rounds, "shown": shown}
            )
    return found, others


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    words.add_argument("paper")
    words.add_argument("--before", required=True, metavar="REVISION")
    words.add_argument("--rounds", type=int, default=4)
    words.add_argument("--most", type=int, default=12, help="rows of each algorithm")
    words.add_argument("--without-unit", action="store_true", help="both as on a processor without a matrix unit")
    asked = words.parse_args()
    if asked.without_unit:
        os.environ.update(without_unit())  # for the processes that run them
    git = ["git", "-C", str(ROOT), "worktree"]
    records = ROOT / "papers" / asked.paper
    with tempfile.TemporaryDirectory() as place:
        # Compiled anew: Numba would take a kernel from before a change of what it calls from another file.
        os.environ["NUMBA_CACHE_DIR"] = f"{place}/kernels"
        former = Path(place) / "former"
        subprocess.run([*git, "add", "--quiet", "--detach", str(former), asked.before], check=True)
        try:
            found, others = compare(records, former, ROOT, asked.rounds, asked.most)
        finally:
            subprocess.run([*git, "remove", "--force", str(former)], check=True)
    file = records / SAME_BYTES
    earlier = json.loads(file.read_text())["changes"] if file.exists() else []
    command = f"python -m benchmarks.same_bytes {asked.paper} --before REVISION"
    command += " --without-unit" if asked.without_unit else ""
    about = {"command": command, "hardware": hardware()}
    tensors.write_json(file, {"changes": [*earlier, *(about | one for one in found)]})
    print(f"{len(found)} changes of code that changed no byte, in {file.relative_to(ROOT)}")
    if others:
        sys.exit(f"not the same any more, their rows have to be run anew: {', '.join(others)}")


if __name__ == "__main__":
    main()
