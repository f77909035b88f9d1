"""Open a file of interactions as a stream of bytes, packed or not, and say what is wrong where it is no such file."""

from __future__ import annotations

import gzip
import io
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from coterie.errors import CoterieError

# How files begin that people hand over by mistake, and what to do with them.
FOREIGN = {
    b"\x89PNG": "a PNG image",
    b"%PDF": "a PDF document",
    b"SQLite format 3\0": "an SQLite database; export the table as CSV",
    b"BZh": "bzip2-compressed; unpack it first (bunzip2)",
    b"\xfd7zXZ\0": "xz-compressed; unpack it first (unxz)",
    b"\x28\xb5\x2f\xfd": "zstd-compressed; unpack it first (unzstd)",
    b"7z\xbc\xaf": "a 7z archive; unpack it first",
    b"Rar!": "a RAR archive; unpack it first",
    b"\x89HDF": "an HDF5 file; export the table as CSV or Parquet",
    b"\x93NUMPY": "a NumPy array; write it as CSV or Parquet",
    b"\x80\x03": "a Python pickle, which is never read here; write the table as CSV or Parquet",
    b"\x80\x04": "a Python pickle, which is never read here; write the table as CSV or Parquet",
    b"\x80\x05": "a Python pickle, which is never read here; write the table as CSV or Parquet",
    b"ARROW1": "an Arrow/Feather file; write the table as Parquet",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook; save the sheet as CSV",
}
UTF16 = (b"\xff\xfe", b"\xfe\xff")
BOM = b"\xef\xbb\xbf"


@dataclass
class Source:
    """An open file: where it is, how it is packed, and the stream of what is inside."""

    path: Path
    name: str  # as told in messages
    inner: str  # the name of what is inside, in lower case: "ratings.csv" for Ratings.csv.gz
    packing: str  # plain, gzip or zip
    stream: BinaryIO

    def read(self, size: int) -> bytes:
        try:
            return self.stream.read(size)
        except EOFError:
            raise CoterieError(
                f"{self.name}: the gzip file is cut off before its end; copy or download it again."
            ) from None
        except (gzip.BadGzipFile, zlib.error, zipfile.BadZipFile) as error:
            raise CoterieError(
                f"{self.name}: the {self.packing} file is damaged ({error}); copy or download it again."
            ) from None
        except OSError as error:
            raise CoterieError(f"{self.name}: cannot be read ({error.strerror or error}).") from None


@contextmanager
def opened(path: Path) -> Iterator[Source]:
    """The file at `path` as a `Source`; gzip and zip with one member are unpacked on the way."""
    name = str(path)
    with _file(path) as file:
        start = file.read(16)
        file.seek(0)
        inner = path.name.lower()
        if start[:2] == b"\x1f\x8b":
            unpacked = gzip.GzipFile(fileobj=file)
            yield Source(path, name, inner.removesuffix(".gz"), "gzip", unpacked)  # type: ignore[arg-type]
        elif start[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
            with _only_member(file, name) as (member, stream):
                yield Source(path, name, Path(member).name.lower(), "zip", stream)
        else:
            if inner.endswith(".gz") and start:
                raise CoterieError(f"{name}: is named .gz but is not gzip; rename it or compress it again.")
            if inner.endswith(".zip") and start:
                raise CoterieError(f"{name}: is named .zip but is no zip archive; rename it or download it again.")
            yield Source(path, name, inner, "plain", file)


def _file(path: Path) -> BinaryIO:
    try:
        if path.is_dir():
            raise CoterieError(
                f"{path}: is a directory; name the file in it. (A folder in the prepared layout has a file "
                f"interactions.tsv.gz.)"
            )
        return path.open("rb")
    except FileNotFoundError:
        raise CoterieError(f"{path}: there is no such file.") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL inside the path itself
        raise CoterieError(f"{path}: cannot be opened ({getattr(error, 'strerror', None) or error}).") from None


@contextmanager
def _only_member(file: BinaryIO, name: str) -> Iterator[tuple[str, BinaryIO]]:
    try:
        archive = zipfile.ZipFile(file)
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError) as error:
        raise CoterieError(f"{name}: the zip file is damaged ({error}); copy or download it again.") from None
    with archive:
        members = [one for one in archive.infolist() if not one.is_dir()]
        names = [one.filename for one in members]
        if "[Content_Types].xml" in names:
            raise CoterieError(f"{name}: is an Excel workbook; save the sheet as CSV.")
        if len(members) != 1:
            listed = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
            raise CoterieError(
                f"{name}: the zip holds {len(names)} files ({listed or 'none'}), expected exactly one; unpack it and "
                f"name the file with the interactions. (An official archive: coterie data convert {name} TARGET "
                f"--as NAME.)"
            )
        try:
            stream = archive.open(members[0])
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError, ValueError) as error:
            raise CoterieError(f"{name}: the zip member {names[0]} cannot be unpacked ({error}).") from None
        with stream:
            yield names[0], stream  # type: ignore[misc]


def refuse_foreign(source: Source, head: bytes) -> None:
    """Say what the file is, where it is plainly not text in columns."""
    for magic, what in FOREIGN.items():
        if head.startswith(magic):
            raise CoterieError(f"{source.name}: is {what}. Expected text in columns (CSV, TSV, ::, .inter) or Parquet.")
    if head[:2] == b"\x1f\x8b":
        raise CoterieError(f"{source.name}: is compressed twice; unpack it once.")
    if head[:4] == b"PAR1":
        raise CoterieError(
            f"{source.name}: is Parquet inside {source.packing}; unpack it first (Parquet packs itself)."
        )
    if head[:2] in UTF16 or (len(head) > 3 and head[1::2][:200].count(0) > len(head[1::2][:200]) * 0.4):
        raise CoterieError(f"{source.name}: is UTF-16 text; save it as UTF-8 (iconv -f utf-16 -t utf-8).")
    start = head.lstrip()[:64].lower()
    if start.startswith((b"<!doctype", b"<html", b"<?xml")):
        raise CoterieError(
            f"{source.name}: is a web page or XML, not a table; a download may have brought an error page: "
            f"open it to see."
        )
    if start.startswith((b"{", b"[{", b"[[")):
        raise CoterieError(f"{source.name}: is JSON, expected text in columns; convert it to CSV or Parquet first.")
    sample = head[:4096]
    odd = sum(sample.count(bytes([code])) for code in (*range(9), *range(14, 32)))
    if odd > len(sample) * 0.1:
        raise CoterieError(
            f"{source.name}: is a binary file. Expected text in columns (CSV, TSV, ::, .inter) or Parquet."
        )


def from_bytes(content: bytes, name: str) -> Source:
    """Bytes in memory as a `Source` (members of an official archive)."""
    return Source(Path(name), name, Path(name).name.lower(), "plain", io.BytesIO(content))
