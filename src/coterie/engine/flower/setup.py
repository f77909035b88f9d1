"""Before the first round: shards of a data set for trying things out, and a federation's spec from a run's flags."""

from __future__ import annotations

import csv
import json
import secrets
from pathlib import Path
from typing import Any

import numpy as np

from coterie.data.interactions import Interactions
from coterie.engine.flower.ledger import Ledger
from coterie.engine.flower.spec import FederationSpec, Terms, catalogue_hash, check_federated, default_send
from coterie.errors import CoterieError
from coterie.protocol.rules import Protocol

SHARD = "interactions.csv"


def shards(data: Interactions, nodes: int, folder: Path) -> list[Path]:
    """Write each node's people to a file of its own, neighbours in the data together. Returns the files."""
    if not 1 <= nodes <= data.n_users:
        raise CoterieError(f"{data.n_users} users cannot be split over {nodes} nodes; give 1..{data.n_users}")
    cuts = np.linspace(0, data.n_users, nodes + 1).astype(int)
    written = []
    for number in range(nodes):
        home = folder / f"node-{number}"
        home.mkdir(parents=True, exist_ok=True)
        path = home / SHARD
        with path.open("w", newline="") as file:
            lines = csv.writer(file)
            timed = data.times is not None
            lines.writerow(["user_id", "item_id", "rating", *(["timestamp"] if timed else [])])
            for user in range(cuts[number], cuts[number + 1]):
                for row in range(data.indptr[user], data.indptr[user + 1]):
                    when = [] if data.times is None else [int(data.times[row])]
                    rating = repr(float(data.ratings[row]))
                    lines.writerow([data.user_ids[user], data.item_ids[data.items[row]], rating, *when])
        about = {"shard": number, "of": nodes, "users": int(cuts[number + 1] - cuts[number])}
        (home / "shard.json").write_text(json.dumps(about) + "\n")
        written.append(path)
    return written


def shard_number(path: Path) -> int | None:
    """The number of a shard that `coterie split` wrote, else None."""
    about = path.parent / "shard.json"
    return int(json.loads(about.read_text())["shard"]) if about.is_file() else None


def catalogue(data: Interactions, protocol: Protocol, seed: int) -> tuple[list[str], list[str] | None]:
    """Item ids (and titles) in the numbers the simulator would use for this data and protocol."""
    from coterie.protocol import prepare

    kept = prepare(data, protocol, seed).data
    return kept.item_ids, kept.titles


def found(
    folder: Path, algorithm: Any, items: list[str], titles: list[str] | None, terms: Terms, **options: Any
) -> Ledger:
    """A new federation on the server's disk."""
    from dataclasses import asdict

    check_federated(algorithm)
    options = {"send": default_send(algorithm), **{key: one for key, one in options.items() if one is not None}}
    if options.get("privacy") is not None:
        options["privacy"] = options["privacy"].resolved(terms.rounds)
    name = f"{algorithm.name}-{secrets.token_hex(4)}"
    spec = FederationSpec(
        run=name, algorithm=algorithm.name, settings=asdict(algorithm), n_items=len(items),
        catalogue=catalogue_hash(items), **options,
    )  # fmt: skip
    if spec.send == "secure" and terms.min_nodes < 3:
        raise CoterieError(
            f"--send secure hides a node among others: --min-nodes {terms.min_nodes} is too few, give 3 or more"
        )
    return Ledger.create(folder, spec, terms, items, titles)


def read_catalogue(path: Path) -> tuple[list[str], list[str] | None]:
    """Item ids and titles from a CSV with a header; ids are text, in the file's order."""
    try:
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
    except OSError as problem:
        raise CoterieError(f"{path}: {problem.strerror}; expected a CSV with the columns item_id and title") from None
    if not rows or "item_id" not in rows[0]:
        raise CoterieError(
            f"{path}: no column item_id; expected a CSV with the columns item_id and, if there are any, title"
        )
    items = [one["item_id"] for one in rows]
    if len(set(items)) != len(items):
        double = next(one for place, one in enumerate(items) if one in items[:place])
        raise CoterieError(f"{path}: the item {double!r} stands there twice; every item once, please")
    return items, [one["title"] or one["item_id"] for one in rows] if rows[0].get("title") is not None else None
