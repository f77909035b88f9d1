"""Take named files out of a downloaded archive, and nothing else: no path out of the target, no links, no bombs."""

from __future__ import annotations

import stat
import tarfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NamedTuple

from coterie.errors import CoterieError

LARGEST = 4 << 30  # bytes of all members taken out together
RATIO = 250  # unpacked to packed; tables of ratings shrink 3 to 10 times
STEP = 1 << 20


class Member(NamedTuple):
    name: str
    size: int  # unpacked, as the archive says
    packed: int  # 0 where the archive does not say
    regular: bool
    handle: zipfile.ZipInfo | tarfile.TarInfo


def unpack(
    archive: Path, members: tuple[str, ...], target: Path, largest: int = LARGEST, ratio: int = RATIO
) -> list[Path]:
    """The members (by path, or by file name where that is unique) as files in `target`, in the order asked for."""
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as zipped:
                return _take(archive, _zip_members(zipped), zipped.open, members, target, largest, ratio)  # type: ignore[arg-type]
        if tarfile.is_tarfile(archive):
            with tarfile.open(archive) as tar:
                return _take(archive, _tar_members(tar), tar.extractfile, members, target, largest, ratio)  # type: ignore[arg-type]
    except (
        zipfile.BadZipFile,
        tarfile.TarError,
        zlib.error,
        EOFError,
        NotImplementedError,
        RuntimeError,
        ValueError,
    ) as error:
        raise CoterieError(f"{archive}: the archive is damaged ({error}); download it again.") from None
    except OSError as error:
        raise CoterieError(f"{archive}: cannot be unpacked ({error.strerror or error}).") from None
    raise CoterieError(f"{archive}: is neither a zip nor a tar archive; download it again.")


def _zip_members(zipped: zipfile.ZipFile) -> list[Member]:
    found = []
    for one in zipped.infolist():
        kind = stat.S_IFMT(one.external_attr >> 16)
        if not one.is_dir():
            found.append(Member(one.filename, one.file_size, one.compress_size, kind in (0, stat.S_IFREG), one))
    return found


def _tar_members(tar: tarfile.TarFile) -> list[Member]:
    return [Member(one.name, one.size, 0, one.isreg(), one) for one in tar.getmembers() if not one.isdir()]


def _take(
    archive: Path,
    found: list[Member],
    open_member: object,
    members: tuple[str, ...],
    target: Path,
    largest: int,
    ratio: int,
) -> list[Path]:
    for one in found:
        _refuse(archive, one)
    left = largest
    files = []
    for wanted in members:
        one = _find(archive, found, wanted)
        allowed = min(left, ratio * one.packed) if one.packed else left
        if one.size > allowed:
            raise _bomb(archive, one.name, largest, ratio)
        file = target / PurePosixPath(wanted).name
        with open_member(one.handle) as stream, file.open("wb") as out:  # type: ignore[operator]
            left -= _copy(stream, out, allowed, _bomb(archive, one.name, largest, ratio))
        files.append(file)
    return files


def _refuse(archive: Path, one: Member) -> None:
    path = PurePosixPath(one.name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in path.parts[0] or "\0" in one.name:
        raise CoterieError(
            f"{archive}: the member {one.name!r} points out of the archive; this is not the official file."
        )
    if not one.regular:
        raise CoterieError(f"{archive}: the member {one.name!r} is a link or a device; this is not the official file.")


def _find(archive: Path, found: list[Member], wanted: str) -> Member:
    exact = [one for one in found if one.name == wanted]
    by_name = [one for one in found if PurePosixPath(one.name).name == PurePosixPath(wanted).name]
    for hits in (exact, by_name):
        if len(hits) == 1:
            return hits[0]
    listed = ", ".join(one.name for one in found[:8])
    raise CoterieError(
        f"{archive}: holds {len(by_name)} files {wanted!r}, expected one; there are: {listed or 'none'}."
    )


def _bomb(archive: Path, name: str, largest: int, ratio: int) -> CoterieError:
    return CoterieError(
        f"{archive}: the member {name!r} unpacks to more than {largest:,} bytes or {ratio} times its packed size; "
        f"refused."
    )


def _copy(stream: BinaryIO, out: BinaryIO, allowed: int, bomb: CoterieError) -> int:
    """Copy at most `allowed` bytes: what an archive says about its sizes need not be true."""
    written = 0
    while block := stream.read(STEP):
        written += len(block)
        if written > allowed:
            raise bomb
        out.write(block)
    return written
