"""Fetching, against a real HTTP server on this machine that resumes, refuses, cuts off and lies."""

from __future__ import annotations

import hashlib
import io
import stat
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from coterie.data import CATALOGUE, fetch, load
from coterie.data.download import download
from coterie.data.unpack import _copy, unpack
from coterie.errors import CoterieError


def zipped(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


ROWS = "".join(f"{n % 40}\t{n * 7 % 90}\t{n % 5 + 1}\t{881250949 + n}\n" for n in range(20_000)).encode()
OFFICIAL = zipped({"ml-100k/u.data": ROWS, "ml-100k/u.item": b"7|Seven (1995)|x\n"})


@dataclass
class Site:
    """What the server does; tests change it as they go."""

    content: bytes = OFFICIAL
    tag: str = '"one"'
    ranges: bool = True
    length: bool = True
    cut_after: int | None = None  # bytes, then the connection is closed
    cuts: int = 0  # how often still
    status: int = 200
    requests: list[str | None] = field(default_factory=list)  # the Range asked for
    address: str = ""


class Handler(BaseHTTPRequestHandler):
    site: Site

    def do_GET(self) -> None:
        site = self.site
        wanted = self.headers.get("Range")
        site.requests.append(wanted)
        if site.status != 200:
            self.send_error(site.status)
            return
        start = 0
        if wanted and site.ranges and self.headers.get("If-Range") == site.tag:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(site.content):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(site.content) - 1}/{len(site.content)}")
        else:
            self.send_response(200)
        body = site.content[start:]
        self.send_header("ETag", site.tag)
        if site.length:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if site.cuts and site.cut_after is not None:
            site.cuts -= 1
            body = body[: site.cut_after]
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    handler = type("OneSite", (Handler,), {"site": made})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    made.address = f"http://127.0.0.1:{server.server_address[1]}/ml-100k.zip"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def small_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalogue expects the sum of the archive made here, not of the real one."""
    entry = replace(CATALOGUE["ml-100k"], md5=hashlib.md5(OFFICIAL).hexdigest())
    monkeypatch.setitem(CATALOGUE, "ml-100k", entry)


def get(site: Site, folder: Path, **options: object) -> Path:
    return fetch("ml-100k", folder, address=site.address, pause=0, **({"accept_terms": True} | options))  # type: ignore[arg-type]


def test_fetched_and_converted(site: Site, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    folder = get(site, tmp_path, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (len(OFFICIAL), len(OFFICIAL)) and [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert folder == tmp_path / "ml-100k"
    assert sorted(path.name for path in folder.iterdir()) == [
        "interactions.tsv.gz", "items.tsv.gz", "origin.json", "terms-accepted.txt"
    ]  # fmt: skip
    data = load("ml-100k", data_dir=tmp_path)
    assert len(data) == 20_000 and data.titles is not None and data.titles[data.item_number["7"]] == "Seven (1995)"
    assert get(site, tmp_path) == folder and len(site.requests) == 1  # not asked for again


def test_terms_are_accepted_once(site: Site, tmp_path: Path) -> None:
    with pytest.raises(CoterieError, match="its terms must be accepted once: research use with acknowledgement"):
        get(site, tmp_path, accept_terms=False)
    with pytest.raises(CoterieError, match="--accept-terms"):
        get(site, tmp_path, accept_terms=lambda entry: False)
    assert not site.requests and not list(tmp_path.iterdir())
    asked: list[str] = []
    folder = get(site, tmp_path, accept_terms=lambda entry: bool(asked.append(entry.name)) or True)
    (folder / "interactions.tsv.gz").unlink()
    get(site, tmp_path, accept_terms=lambda entry: bool(asked.append(entry.name)) or True)
    assert asked == ["ml-100k"] and len(site.requests) == 2


def test_resumed_after_cuts(site: Site, tmp_path: Path) -> None:
    site.cut_after, site.cuts = len(OFFICIAL) // 4, 3
    get(site, tmp_path)
    quarter = len(OFFICIAL) // 4
    assert site.requests == [None, f"bytes={quarter}-", f"bytes={2 * quarter}-", f"bytes={3 * quarter}-"]
    assert len(load("ml-100k", data_dir=tmp_path)) == 20_000


def test_resumed_by_the_next_process(site: Site, tmp_path: Path) -> None:
    site.cuts, site.cut_after = 1, 1000

    def close(done: int, total: int | None) -> None:
        site.status = 503  # after the first cut the site is down

    with pytest.raises(CoterieError, match=r"cannot be reached \(503"):
        get(site, tmp_path, progress=close)
    site.status = 200
    get(site, tmp_path)
    assert site.requests[-1] == "bytes=1000-" and len(load("ml-100k", data_dir=tmp_path)) == 20_000


def test_a_changed_file_is_not_mixed_with_the_old_part(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "x.zip"
    site.content, site.tag, site.cuts, site.cut_after = b"old" * 1000, '"old"', 1, 500

    def change(done: int, total: int | None) -> None:
        site.content, site.tag = OFFICIAL, '"new"'

    download(site.address, file, change, pause=0)
    assert file.read_bytes() == OFFICIAL and site.requests == [None, "bytes=500-"]


def test_a_server_without_ranges(site: Site, tmp_path: Path) -> None:
    site.ranges, site.cuts, site.cut_after = False, 1, 500
    file = download(site.address, tmp_path / "x.zip", pause=0)
    assert file.read_bytes() == OFFICIAL
    assert [path.name for path in tmp_path.iterdir()] == ["x.zip"]


def test_a_part_that_is_too_long_is_thrown_away(site: Site, tmp_path: Path) -> None:
    site.cuts, site.cut_after = 1, 500
    file = tmp_path / "x.zip"

    def lengthen(done: int, total: int | None) -> None:
        if done == 500:
            (tmp_path / "x.zip.part").write_bytes(OFFICIAL + b"more")

    assert download(site.address, file, lengthen, pause=0).read_bytes() == OFFICIAL


def test_without_a_length(site: Site, tmp_path: Path) -> None:
    site.length = False
    assert download(site.address, tmp_path / "x.zip", pause=0).read_bytes() == OFFICIAL


def test_a_wrong_sum(site: Site, tmp_path: Path) -> None:
    site.content = OFFICIAL + b"x"
    with pytest.raises(
        CoterieError, match=r"has the md5 [0-9a-f]{32}, expected [0-9a-f]{32}; the download is thrown away"
    ):
        get(site, tmp_path)
    assert [path.name for path in (tmp_path / "ml-100k").iterdir()] == ["terms-accepted.txt"]


def test_offline_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CoterieError) as error:
        fetch("ml-100k", tmp_path, accept_terms=True, address="http://127.0.0.1:9/x.zip", pause=0)
    message = str(error.value)
    assert message.startswith("http://127.0.0.1:9/x.zip: cannot be reached (")
    assert "download https://files.grouplens.org/datasets/movielens/ml-100k.zip yourself" in message
    assert f"put it at {tmp_path}/ml-100k/ml-100k.zip" in message


@pytest.mark.parametrize(
    ("status", "says"), [(404, "the server answers 404"), (403, "answers 403"), (503, "cannot be reached (503")]
)
def test_refused(site: Site, tmp_path: Path, status: int, says: str) -> None:
    site.status = status
    with pytest.raises(CoterieError) as error:
        get(site, tmp_path)
    assert says in str(error.value) and "put it at" in str(error.value)
    assert len(site.requests) == (5 if status == 503 else 1)


@pytest.mark.parametrize("address", ["file:///etc/hostname", "ftp://example.org/x.zip", "x.zip"])
def test_only_the_web(tmp_path: Path, address: str) -> None:
    with pytest.raises(CoterieError, match=r"expected an address that begins with http:// or https://"):
        download(address, tmp_path / "x")


def test_by_hand_and_by_nobody(tmp_path: Path) -> None:
    with pytest.raises(
        CoterieError, match=r"ta-feng cannot be fetched by a program.\nGet ta_feng_all_months_merged\.csv"
    ):
        fetch("ta-feng", tmp_path, accept_terms=True)
    with pytest.raises(CoterieError, match=r"unknown data set 'ml-10k'\. Did you mean 'ml-100k'\?"):
        fetch("ml-10k", tmp_path)
    (tmp_path / "ml-100k").mkdir()
    (tmp_path / "ml-100k" / "ml-100k.zip").write_bytes(OFFICIAL)
    folder = fetch("ml-100k", tmp_path, accept_terms=True)
    assert (folder / "interactions.tsv.gz").is_file() and (folder / "ml-100k.zip").is_file()


def test_a_bad_archive_leaves_no_data_set(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site.content = zipped({"ml-100k/u.data": b"1\t2\tx\t881250949\n", "ml-100k/u.item": b""})
    monkeypatch.setitem(CATALOGUE, "ml-100k", replace(CATALOGUE["ml-100k"], md5=None))
    with pytest.raises(CoterieError, match=r"ml-100k\.zip/u\.data:1:3: rating 'x'"):
        get(site, tmp_path)
    assert not (tmp_path / "ml-100k" / "interactions.tsv.gz").exists()


def with_link() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        link = zipfile.ZipInfo("u.data")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    return out.getvalue()


def tar_with(name: str, kind: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, "/etc/passwd"
        archive.addfile(member, io.BytesIO())
    return out.getvalue()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (zipped({"u.data": b"x", "../evil": b"x"}), "the member '../evil' points out of the archive"),
        (zipped({"u.data": b"x", "/etc/evil": b"x"}), "the member '/etc/evil' points out of the archive"),
        (zipped({"u.data": b"x", "a/../../evil": b"x"}), "points out of the archive"),
        (zipped({"u.data": b"x", "..\\evil": b"x"}), "points out of the archive"),
        (zipped({"u.data": b"x", "C:evil": b"x"}), "points out of the archive"),
        (with_link(), "the member 'u.data' is a link or a device"),
        (tar_with("u.data", tarfile.SYMTYPE), "is a link or a device"),
        (tar_with("u.data", tarfile.CHRTYPE), "is a link or a device"),
        (tar_with("../u.data", tarfile.REGTYPE), "points out of the archive"),
        (
            zipped({"u.data": bytes(30_000_000)}),
            "unpacks to more than 4,294,967,296 bytes or 250 times its packed size",
        ),
        (zipped({"other": b"x"}), "holds 0 files 'u.data', expected one; there are: other."),
        (zipped({"a/u.data": b"x", "b/u.data": b"x"}), "holds 2 files 'u.data', expected one"),
        (zipped({"u.data": b"x" * 500})[:-40], "is neither a zip nor a tar archive"),
        (b"hello", "is neither a zip nor a tar archive"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",  # gzip writes the time: bytes would name each start anew
)
def test_unpacking_is_safe(tmp_path: Path, content: bytes, says: str) -> None:
    path, target = tmp_path / "a.zip", tmp_path / "in"
    path.write_bytes(content)
    target.mkdir()
    with pytest.raises(CoterieError) as error:
        unpack(path, ("u.data",), target)
    assert says in str(error.value) and str(error.value).startswith(str(path))
    assert sorted(one.name for one in tmp_path.rglob("*")) == ["a.zip", "in"]


def test_sizes_that_lie_are_counted(tmp_path: Path) -> None:
    """The header says 10 bytes; what comes out is checked all the same."""
    content = bytearray(zipped({"u.data": b"0123456789" * 100_000}))
    for place in (22, content.rindex(b"PK\x01\x02") + 24):  # the unpacked size, in both headers
        content[place : place + 4] = (10).to_bytes(4, "little")
    (tmp_path / "a.zip").write_bytes(bytes(content))
    with pytest.raises(CoterieError, match=r"damaged|more than"):
        unpack(tmp_path / "a.zip", ("u.data",), tmp_path)
    with pytest.raises(CoterieError, match="more than 1,000 bytes"):
        (tmp_path / "b.zip").write_bytes(zipped({"u.data": bytes(range(256)) * 40}))
        unpack(tmp_path / "b.zip", ("u.data",), tmp_path, largest=1000)


def test_members_by_name_from_zip_and_tar(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(zipped({"deep/u.data": b"one", "deep/u.item": b"two", "deep/x/": b""}))
    files = unpack(tmp_path / "a.zip", ("ml/u.item", "u.data"), tmp_path)
    assert [file.read_bytes() for file in files] == [b"two", b"one"]
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "u.item", "somewhere/u.item")
    (tmp_path / "u.item").unlink()
    assert unpack(tmp_path / "a.tar.gz", ("u.item",), tmp_path)[0].read_bytes() == b"two"


def test_no_more_is_copied_than_allowed() -> None:
    with pytest.raises(CoterieError, match="too much"):
        _copy(io.BytesIO(bytes(100)), io.BytesIO(), 99, CoterieError("too much"))
    assert _copy(io.BytesIO(bytes(100)), io.BytesIO(), 100, CoterieError("too much")) == 100
