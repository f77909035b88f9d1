"""`fetch`: a data set of the catalogue from its official address into the prepared layout."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from coterie.data.catalogue import CATALOGUE, Entry
from coterie.data.download import Progress, checksum, download
from coterie.data.load import fetched_folder
from coterie.data.official import read_official
from coterie.data.prepared import write_prepared
from coterie.errors import CoterieError, unknown_name


def fetch(
    name: str,
    data_dir: Path | None = None,
    *,
    accept_terms: bool | Callable[[Entry], bool] = False,
    address: str | None = None,
    progress: Progress | None = None,
    pause: float = 1.0,
) -> Path:
    """Download, check and convert a data set; the folder it is in now. What is there already is not fetched again.

    The terms must be accepted once for each data set and folder: with `accept_terms=True`, or by a function that asks.
    `address` is another place to get the same official file from.
    """
    if name not in CATALOGUE:
        raise unknown_name("data set", name, list(CATALOGUE))
    entry = CATALOGUE[name]
    folder = (fetched_folder() if data_dir is None else Path(data_dir)) / name
    if (folder / "interactions.tsv.gz").is_file():
        return folder
    official = folder / entry.file
    by_hand = official.is_file()
    place = address or entry.address
    if not by_hand and place is None:
        raise CoterieError(f"{name} cannot be fetched by a program.\n{entry.how_to_get(folder.parent)}")
    _accept(entry, folder, accept_terms)
    if not by_hand:
        assert place is not None
        try:
            download(place, official, progress, pause=pause)
        except CoterieError as error:
            raise CoterieError(f"{error}\n{entry.how_to_get(folder.parent)}") from None
        except OSError as error:
            raise CoterieError(f"{folder}: cannot be written ({error.strerror or error}).") from None
        _verify(entry, official, place)
    origin = {
        "address": "put there by hand" if by_hand else place,
        "file": entry.file,
        "sha256": checksum(official, "sha256"),
        "homepage": entry.homepage,
        "terms": entry.terms,
        "citation": entry.citation,
    }
    rows, titles, _ = read_official(entry, official)
    (folder / "origin.json").write_text(json.dumps(origin, indent=2) + "\n", encoding="utf-8")
    write_prepared(rows, titles, folder)
    if not by_hand:
        official.unlink()
    return folder


def _accept(entry: Entry, folder: Path, accept_terms: bool | Callable[[Entry], bool]) -> None:
    """Terms are accepted once; the file that says so holds their words, so that changed terms are asked again."""
    marker = folder / "terms-accepted.txt"
    text = f"{entry.title}\n{entry.homepage}\n{entry.terms}\n"
    if marker.is_file() and marker.read_text(encoding="utf-8") == text:
        return
    if not (accept_terms(entry) if callable(accept_terms) else accept_terms):
        raise CoterieError(
            f"{entry.name}: its terms must be accepted once: {entry.terms}. Read {entry.homepage}, then: "
            f"coterie data fetch {entry.name} --accept-terms (accept_terms=True)."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        marker.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CoterieError(
            f"{folder}: cannot be written ({error.strerror or error}); name another with --data-dir."
        ) from None


def _verify(entry: Entry, official: Path, place: str) -> None:
    if entry.md5 is None:
        return
    found = checksum(official, "md5")
    if found != entry.md5:
        official.unlink()
        raise CoterieError(
            f"{place}: has the md5 {found}, expected {entry.md5}; the download is thrown away. Try again, or compare "
            f"with {entry.homepage}."
        )
