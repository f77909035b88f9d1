"""Download one file: with progress, resumed where it was cut off, never mixed with another version of itself."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coterie.errors import CoterieError

Progress = Callable[[int, int | None], None]  # bytes so far, bytes in all (None: not known)
LARGEST = 8 << 30
STEP = 1 << 18
TRIES = 5  # in a row without a single new byte


def download(
    address: str, file: Path, progress: Progress | None = None, *, pause: float = 1.0, timeout: float = 30
) -> Path:
    """The file at `address` as `file`. What was got before stays in `file`.part and is not asked for again."""
    if not address.startswith(("http://", "https://")):
        raise CoterieError(f"{address}: expected an address that begins with http:// or https://.")
    part, state = file.with_name(file.name + ".part"), file.with_name(file.name + ".part.json")
    failures, reason = 0, ""
    while failures < TRIES:
        before = part.stat().st_size if part.exists() else 0
        try:
            if _more(address, part, state, progress, timeout):
                part.replace(file)
                state.unlink(missing_ok=True)
                return file
            reason = "the connection was cut"
        except _Refused as refused:
            raise CoterieError(f"{address}: the server answers {refused}.") from None
        except OSError as error:  # URLError, timeouts and broken connections are all OSErrors
            reason = str(getattr(error, "reason", None) or error)
        after = part.stat().st_size if part.exists() else 0
        failures = failures + 1 if after <= before else 0
        if failures < TRIES:
            time.sleep(pause * failures)
    raise CoterieError(f"{address}: cannot be reached ({reason}).")


class _Refused(Exception):
    """An answer that will not get better by asking again."""


def _more(address: str, part: Path, state: Path, progress: Progress | None, timeout: float) -> bool:
    """Ask once for what is missing; True if the file is whole now."""
    import http.client
    import urllib.error
    import urllib.request

    have = part.stat().st_size if part.exists() else 0
    known = _state(state)
    headers = {"User-Agent": "coterie", "Accept-Encoding": "identity"}
    if have and known.get("address") == address and known.get("version"):
        headers |= {"Range": f"bytes={have}-", "If-Range": str(known["version"])}
    try:
        answer = urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=timeout)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:  # what we have is not a beginning of what is there
            part.unlink(missing_ok=True)
            return False
        if error.code >= 500:
            raise OSError(f"{error.code} {error.reason}") from None
        raise _Refused(f"{error.code} {error.reason}") from None
    with answer:
        have = have if answer.status == 206 and _starts_at(answer.headers.get("Content-Range"), have) else 0
        length = answer.headers.get("Content-Length")
        total = have + int(length) if length and length.isdigit() else None
        if (total or 0) > LARGEST:
            raise _Refused(f"with {total:,} bytes, more than the {LARGEST:,} allowed")
        version = answer.headers.get("ETag") or answer.headers.get("Last-Modified")
        state.write_text(json.dumps({"address": address, "version": version}), encoding="utf-8")
        with part.open("ab" if have else "wb") as out:
            while True:
                try:
                    block = answer.read(STEP)
                except http.client.IncompleteRead as cut:
                    out.write(cut.partial)
                    return False
                if not block:
                    break
                out.write(block)
                have += len(block)
                if have > LARGEST:
                    raise _Refused(f"with more than the {LARGEST:,} bytes allowed")
                if progress is not None:
                    progress(have, total)
    return total is None or have == total


def _starts_at(content_range: str | None, have: int) -> bool:
    return content_range is not None and content_range.startswith(f"bytes {have}-")


def _state(state: Path) -> dict[str, Any]:
    try:
        known = json.loads(state.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def checksum(file: Path, kind: str) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, kind).hexdigest()
