"""Mutated files: either they are read, or a CoterieError says why not. Nothing else may come out."""

from __future__ import annotations

import gzip
import io
import zipfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from coterie.data import load
from coterie.errors import CoterieError

ROWS = "".join(f"u{n % 7},i{n % 5},{n % 5 + 1},{881_250_949 + n}\n" for n in range(30))
CSV = ("user_id,item_id,rating,timestamp\n" + ROWS).encode()
SPLICES = [
    b"\0", b"\r", b"\n", b"\r\n", b'"', b'""', b",", b"\t", b"::", b":::", b";", b"|", b" ", b"\xff", b"\xe9",
    b"\xef\xbb\xbf", b"nan", b"inf", b"-", b"1e999", b"9" * 25, b"-9223372036854775808", b"9223372036854775808",
    b"\x1f", b"\x1e", b"\x85", "\u2028".encode(), "é".encode(), "e\u0301".encode(), b"\xed\xa0\x80", b"user_id",
    b"rating", b"PAR1", b"PK\x03\x04", b"\x1f\x8b",
]  # fmt: skip


def seeds() -> list[tuple[str, bytes]]:
    packed, table = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.csv", CSV)
    pl.read_csv(CSV).write_parquet(table)
    inter = CSV.replace(b",", b"\t").replace(
        b"user_id\titem_id\trating\ttimestamp", b"user_id:token\titem_id:token\trating:float\ttimestamp:float"
    )
    return [
        ("a.csv", CSV),
        ("b.csv", CSV.replace(b"u1", b'"u1"')),
        ("a.tsv", CSV.replace(b",", b"\t")),
        ("a.inter", inter),
        ("a.dat", ROWS.replace(",", "::").encode()),
        ("u.data", ROWS.replace(",", "\t").encode()),
        ("a.csv.gz", gzip.compress(CSV, mtime=0)),
        ("a.zip", packed.getvalue()),
        ("a.parquet", table.getvalue()),
    ]


def mutated(content: bytes, draw: np.random.Generator) -> bytes:
    """One to four changes: a bit, a splice, a cut, a repeat, a swap, an end lost."""
    for _ in range(int(draw.integers(1, 5))):
        at, other = sorted(int(place) for place in draw.integers(0, len(content) + 1, 2))
        match int(draw.integers(0, 6)):
            case 0 if content:
                place = min(at, len(content) - 1)
                flipped = content[place] ^ (1 << int(draw.integers(0, 8)))
                content = content[:place] + bytes([flipped]) + content[place + 1 :]
            case 1:
                content = content[:at] + SPLICES[int(draw.integers(0, len(SPLICES)))] + content[at:]
            case 2:
                content = content[:at] + content[min(other, at + 40) :]
            case 3:
                content = content[:other] + content[at:other] + content[other:]
            case 4:
                content = content[other:] + content[:other] if draw.integers(0, 4) == 0 else content
            case _:
                content = content[:other] if draw.integers(0, 3) == 0 else content
    return content


def survive(folder: Path, count: int, seed: int) -> tuple[int, int]:
    draw = np.random.default_rng(seed)
    starts = seeds()
    read = refused = 0
    for number in range(count):
        # A Parquet file is read by a child process first, which takes its time: one in a hundred.
        name, content = starts[-1] if number % 100 == 99 else starts[number % (len(starts) - 1)]
        path = folder / name
        path.write_bytes(mutated(content, draw))
        how = "quarantine" if draw.integers(0, 2) else "error"
        try:
            data = load(path, on_bad_row=how)  # type: ignore[arg-type]
        except CoterieError as error:
            refused += 1
            assert str(path) in str(error)
            continue
        read += 1
        rows = data.notes["rows"]
        assert isinstance(rows, dict) and rows["in"] == rows["kept"] + rows["quarantined"]
        assert len(data) == rows["kept"] == data.indptr[-1] > 0
        assert np.isfinite(data.ratings).all() and (data.ratings >= 0).all()
        assert len(set(data.user_ids)) == data.n_users == len(data.indptr) - 1
        assert all(text.strip() for text in data.user_ids + data.item_ids)
        assert data.items.min() == 0 and data.items.max() == data.n_items - 1
    return read, refused


def test_a_thousand_mutated_files(tmp_path: Path) -> None:
    read, refused = survive(tmp_path, 1_000, seed=0)
    assert read > 100 and refused > 100  # the mutations are neither all harmless nor all fatal


@pytest.mark.slow
def test_ten_thousand_mutated_files(tmp_path: Path) -> None:
    assert sum(survive(tmp_path, 10_000, seed=1)) == 10_000
