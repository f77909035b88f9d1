"""What is read, and that it is read right: formats, packings, ids, times, titles, rows set aside."""

from __future__ import annotations

import gzip
import io
import zipfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from coterie.data import Interactions, filter_users, load
from coterie.data.blocks import Block, plain_columns, split_columns, whole_lines
from coterie.data.dialect import Dialect
from coterie.data.opening import from_bytes
from coterie.data.problems import Problems
from coterie.errors import CoterieError

ROWS = [("u1", "i1", 5.0, 881250949), ("u2", "i1", 3.0, 881250950), ("u1", "i2", 1.5, 881250951)]


def text(separator: str, header: str | None = "user_id item_id rating timestamp") -> bytes:
    lines = [] if header is None else [header.replace(" ", separator)]
    lines += [separator.join(map(str, row)) for row in ROWS]
    return ("\n".join(lines) + "\n").encode()


def zipped(name: str, content: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("folder/", b"")
        archive.writestr(name, content)
    return out.getvalue()


def parquet(frame: pl.DataFrame) -> bytes:
    out = io.BytesIO()
    frame.write_parquet(out)
    return out.getvalue()


def read(tmp_path: Path, name: str, content: bytes, **options: object) -> Interactions:
    path = tmp_path / name
    path.write_bytes(content)
    return load(path, **options)  # type: ignore[arg-type]


FRAME = pl.DataFrame(ROWS, schema=["user_id", "item_id", "rating", "timestamp"], orient="row")
FORMATS = {
    "csv": ("a.csv", text(",")),
    "tsv": ("a.tsv", text("\t")),
    "semicolons": ("a.txt", text(";")),
    "bars": ("a.txt", text("|")),
    "spaces": ("a.txt", text(" ")),
    "double colons": ("ratings.dat", text("::")),
    "double colons without header": ("ratings.dat", text("::", None)),
    "tabs without header": ("u.data", text("\t", None)),
    "commas without header": ("a.csv", text(",", None)),
    "RecBole": ("a.inter", text("\t", "user_id:token item_id:token rating:float timestamp:float")),
    "other names": ("a.csv", text(",", "userId movieId stars unixReviewTime")),
    "upper case": ("a.csv", text(",", "USER_ID ITEM_ID RATING TIMESTAMP")),
    "quoted header": ("a.csv", text(",", '"user_id" "item_id" "rating" "timestamp"')),
    "quoted fields": ("a.csv", text(",").replace(b"u1", b'"u1"').replace(b"i2", b'"i2"')),
    "BOM": ("a.csv", b"\xef\xbb\xbf" + text(",")),
    "CRLF": ("a.csv", text(",").replace(b"\n", b"\r\n")),
    "no last line end": ("a.csv", text(",").rstrip(b"\n")),
    "blank lines": ("a.csv", b"\n" + text(",").replace(b"\n", b"\n\n") + b"\n\r\n"),
    "gzip": ("a.csv.gz", gzip.compress(text(","))),
    "gzip of two parts": ("a.csv.gz", gzip.compress(text(",")[:40]) + gzip.compress(text(",")[40:])),
    "zip": ("a.zip", zipped("inside/a.csv", text(","))),
    "times as floats": (
        "a.csv",
        text(",").replace(b"881250949", b"881250949.0").replace(b"881250951", b"8.81250951e8"),
    ),
    "spaces around numbers": ("a.csv", text(",").replace(b",5.0,", b", 5.0 ,").replace(b",8812", b", 8812")),
    "parquet": ("a.parquet", parquet(FRAME)),
    "parquet by another name": ("a.bin", parquet(FRAME)),
    "parquet with dates": (
        "a.parquet",
        parquet(FRAME.with_columns(pl.from_epoch("timestamp", "s").dt.replace_time_zone("UTC"))),
    ),
    "parquet with categories": ("a.parquet", parquet(FRAME.cast({"user_id": pl.Categorical, "rating": pl.Float32}))),
}


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_gives_the_same_content(tmp_path: Path, kind: str) -> None:
    data = read(tmp_path, *FORMATS[kind])
    assert data.user_ids == ["u1", "u2"] and data.item_ids == ["i1", "i2"]
    assert data.indptr.tolist() == [0, 2, 3] and data.items.tolist() == [0, 1, 0]
    assert data.ratings.tolist() == [5.0, 1.5, 3.0]
    assert data.times is not None and data.times.tolist() == [881250949, 881250951, 881250950]
    assert data.notes["rows"] == {"in": 3, "kept": 3, "quarantined": 0}
    assert (data.items.dtype, data.ratings.dtype, data.times.dtype) == (np.int32, np.float32, np.int64)


def test_findings_are_announced(tmp_path: Path) -> None:
    data = read(tmp_path, "u.data", text("\t", None))
    assert data.notes["announcements"] == [
        "separated by tab; no header, columns: user '1', item '2', rating '3', timestamp '4'"
    ]
    data = read(tmp_path, "a.csv", text(";", "uid iid count ts"))
    assert data.notes["announcements"] == [
        "separated by semicolon; columns: user 'uid', item 'iid', rating 'count', timestamp 'ts'"
    ]


@pytest.mark.parametrize(
    ("content", "columns"),
    [
        (b"who;when;what\nu1;5;i1\nu2;6;i2\n", {"user": "who", "item": "what", "timestamp": "when"}),
        (b"u1,5,i1\nu2,6,i2\n", {"user": "1", "item": "3", "timestamp": "2"}),
        (b"x::5::i1::u1\nx::6::i2::u2\n", {"user_id": "4", "item_id": "3", "time": "2"}),
        (b"who\twhen\twhat\nu1\t5\ti1\nu2\t6\ti2\n", {"user": "1", "item": "3", "timestamp": "2"}),
        (
            b"who:token\twhen:float\twhat:token\nu1\t5\ti1\nu2\t6\ti2\n",
            {"user": "who", "item": "what", "time": "when"},
        ),
    ],
)
def test_columns_by_name_and_number(tmp_path: Path, content: bytes, columns: dict[str, str]) -> None:
    data = read(tmp_path, "a.txt", content, columns=columns)
    assert (data.user_ids, data.item_ids) == (["u1", "u2"], ["i1", "i2"])
    assert data.times is not None and data.times.tolist() == [5, 6]
    assert data.ratings.tolist() == [1, 1]


def test_ids_stay_text(tmp_path: Path) -> None:
    ids = ["007", "7", "7.0", "18446744073709551616", "9" * 40, "+7", "1e3", "-0", "NaN", "Ωμέγα", "🎧"]
    content = "user_id,item_id\n" + "".join(f"{one},x{one}\n" for one in ids)
    data = read(tmp_path, "a.csv", content.encode())
    assert data.user_ids == ids and data.item_ids == [f"x{one}" for one in ids]
    assert data.times is None
    assert data.notes["warnings"] == ["user id 'NaN' is read as a name; remove those rows if it means a missing value."]
    table = pl.DataFrame(
        {"user_id": [2**63 + 5, 7], "item_id": [1, 2]}, schema={"user_id": pl.UInt64, "item_id": pl.Int8}
    )
    assert read(tmp_path, "a.parquet", parquet(table)).user_ids == ["9223372036854775813", "7"]


def test_unicode_forms_and_spaces_are_warned_about(tmp_path: Path) -> None:
    data = read(tmp_path, "a.csv", "user_id,item_id\ncafé,a\ncafe\u0301,b\nx, b\n".encode())
    assert data.n_users == 3
    assert data.notes["warnings"] == [
        "1 user ids are written in more than one Unicode form and count as different, e.g. 'café'; normalise the file "
        "to NFC if they are the same.",
        "1 item ids begin or end with a space, which counts, e.g. ' b'.",
    ]


@pytest.mark.parametrize(
    ("factor", "unit"), [(1_000, "milliseconds"), (1_000_000, "microseconds"), (1_000_000_000, "nanoseconds")]
)
def test_finer_units_become_seconds(tmp_path: Path, factor: int, unit: str) -> None:
    times = [1_238_536_800, -428_284_800, 286_000_000, 1_304_930_000]  # as in lastfm-2k-tags: one is before 1970
    rows = "".join(f"u,i{n},{time * factor + 999 * (factor // 1000)}\n" for n, time in enumerate(times))
    data = read(tmp_path, "a.csv", b"user_id,item_id,timestamp\n" + rows.encode())
    assert data.times is not None and data.times.tolist() == times
    assert data.notes["time_unit"] == unit
    assert f"times are in {unit}; converted to seconds" in data.notes["announcements"]  # type: ignore[operator]


def test_repeated_pairs_are_kept_and_counted(tmp_path: Path) -> None:
    data = read(tmp_path, "a.csv", b"user,item\na,x\na,x\nb,x\na,y\na,x\n")
    assert len(data) == 5 and data.notes["repeated_pairs"] == 2


def test_rows_set_aside(tmp_path: Path) -> None:
    content = b"user_id,item_id,rating\na,x,5\nb,y,bad\nc\n,x,1\n\xff,q,1\nb,x,2\nz,\x00,3\n"
    data = read(tmp_path, "a.csv", content, on_bad_row="quarantine")
    assert data.notes["rows"] == {"in": 7, "kept": 2, "quarantined": 5}
    assert (data.user_ids, data.ratings.tolist()) == (["a", "b"], [5, 2])
    aside = tmp_path / "a.csv.rejected.tsv"
    assert data.notes["quarantine"] == str(aside)
    lines = aside.read_text(encoding="utf-8").split("\n")
    assert lines[0] == "line\tcolumn\treason\trow" and lines[-1] == ""
    places = sorted(tuple(map(int, line.split("\t")[:2])) for line in lines[1:-1])
    assert places == [(3, 3), (4, 1), (5, 1), (6, 1), (8, 2)]
    assert "3\t3\trating 'bad', expected a finite number of 0 or more\tb\\ty\\tbad" in lines
    assert f"rows in 7 = kept 2 + quarantined 5 ({aside})" in data.notes["announcements"]  # type: ignore[operator]


def test_quarantine_is_named_or_refused(tmp_path: Path) -> None:
    content = b"user_id,item_id,rating\na,x,5\nb,y,bad\n"
    other = tmp_path / "new" / "aside.tsv"
    read(tmp_path, "a.csv", content, on_bad_row="quarantine", quarantine=other)
    assert other.is_file() and not (tmp_path / "a.csv.rejected.tsv").exists()
    for options, says in (
        ({"on_bad_row": "quarantine", "quarantine": tmp_path / "a.csv"}, "cannot take the rejected rows"),
        ({"on_bad_row": "quarantine", "quarantine": tmp_path}, "cannot take the rejected rows"),
        ({"quarantine": other}, "a quarantine file is only written with"),
        ({"on_bad_row": "skip"}, "on_bad_row: 'skip', expected error or quarantine."),
    ):
        with pytest.raises(CoterieError, match=says):
            read(tmp_path, "a.csv", content, **options)
    assert (tmp_path / "a.csv").read_bytes() == content
    with pytest.raises(CoterieError, match=r"holds no interactions, .*all 1 are set aside in"):
        read(tmp_path, "b.csv", b"user_id,item_id,rating\nb,y,bad\n", on_bad_row="quarantine")


def test_a_clean_file_leaves_no_quarantine_file(tmp_path: Path) -> None:
    data = read(tmp_path, "a.csv", text(","), on_bad_row="quarantine")
    assert data.notes["quarantine"] is None and [path.name for path in tmp_path.iterdir()] == ["a.csv"]


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("items.tsv.gz", gzip.compress(b"item_id\ttitle\tgenres\ni2\tThe  Second\tx\n", mtime=0)),
        ("a.items.csv", b'item_id,title\ni2,"The Second"\n'),
        ("a.item", b"item_id:token\tmovie_title:token_seq\ni2\tThe Second\n"),
        ("items.tsv", b"\xef\xbb\xbfid\tname\r\ni2\tThe Second\r\n"),
    ],
)
def test_titles_beside(tmp_path: Path, file: str, content: bytes) -> None:
    (tmp_path / file).write_bytes(content)
    data = read(tmp_path, "a.inter.gz", gzip.compress(text("\t")))
    assert data.titles == ["i1", "The Second"] and data.title(1) == "The Second"
    assert data.notes["warnings"] == ["1 of 2 items have a title; the id stands for the others."]


def test_titles_as_named_and_wrong(tmp_path: Path) -> None:
    titles = tmp_path / "names.csv"
    titles.write_bytes(b"item_id,title\ni1,First\ni2,Second\n")
    assert read(tmp_path, "a.csv", text(","), items=titles).titles == ["First", "Second"]
    assert read(tmp_path, "a.csv", text(",")).titles is None
    for content, says in (
        (b"item_id,title\ni1,First\ni2\n", f"{titles}:3:1: 'i2' has 1 fields, expected 2"),
        (b"item_id,year\ni1,1999\n", f"{titles}: has no title column"),
        (b"a,b\n", f"{titles}:1:1: 'a,b', expected a header with the columns item_id and title."),
        (b"item_id,title\ni1,caf\xe9\n", f"{titles}:2:1: byte b'\\xe9', expected UTF-8 text"),
    ):
        titles.write_bytes(content)
        with pytest.raises(CoterieError) as error:
            read(tmp_path, "a.csv", text(","), items=titles)
        assert says in str(error.value)


def test_a_folder_in_the_prepared_layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "interactions.tsv.gz").write_bytes(gzip.compress(text("\t")))
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path))
    for data in (load(folder), load("mine"), load("mine", data_dir=tmp_path)):
        assert data.name == "mine" and len(data) == 3


def test_filter_is_as_if_the_file_held_nothing_else(tmp_path: Path) -> None:
    lines = [b"a,x", b"b,z", b"b,y", b"b,x", b"c,x", b"c,q"]
    data = read(tmp_path, "a.csv", b"user,item\n" + b"\n".join(lines))
    left = filter_users(data, at_least=2)
    again = read(tmp_path, "a.csv", b"user,item\n" + b"\n".join(lines[1:]))
    assert left.sha256 == again.sha256 and left.item_ids == ["z", "y", "x", "q"]
    assert filter_users(data, at_least=1) is data
    assert load(tmp_path / "a.csv", at_least=3).user_ids == ["b"]
    with pytest.raises(CoterieError, match=r"no user has 4 or more interactions \(the longest history has 3\)"):
        filter_users(data, at_least=4)


def test_filter_keeps_order_where_users_are_mixed(tmp_path: Path) -> None:
    data = read(tmp_path, "a.csv", b"user,item\na,x\nb,y\na,z\nc,w\nb,x\n")
    left = filter_users(data, at_least=2)
    assert (left.user_ids, left.item_ids, left.items.tolist()) == (["a", "b"], ["x", "y", "z"], [0, 2, 1, 0])
    assert left.notes["filter"] == {
        "at_least": 2,
        "before": {"users": 3, "items": 4, "interactions": 5},
        "after": {"users": 2, "items": 3, "interactions": 4},
    }


@pytest.mark.parametrize("separator", [",", "\t", "::"])
def test_both_roads_read_the_same(separator: str) -> None:
    """The fast road (polars) and the slow one (line by line) agree on every block that both take."""
    draw = np.random.default_rng(1)
    dialect = Dialect(separator, None, 4, 0, 1, 2, 3)
    for _ in range(50):
        empty = "-" if separator == "::" else ""  # ":::" goes the slow road
        quoted = ['"a"', '""', '" "', '"é#"'] if separator == "," else ['"']
        cells = draw.choice(np.array([*quoted, "a", "é", empty, " ", "1", "x y", "'", "#", "NULL", "-"]), (20, 4))
        block = Block("\r\n".join(separator.join(row) for row in cells).encode(), 7)
        fast, problems = plain_columns(block, dialect), Problems("a", None)
        slow = split_columns(block, dialect, problems)
        assert fast is not None and not problems.total
        assert fast.lines.tolist() == slow.lines.tolist()
        for one, two in ((fast.user, slow.user), (fast.item, slow.item), (fast.rating, slow.rating)):
            assert one is not None and two is not None and one.to_list() == two.to_list()


@pytest.mark.parametrize(
    "line", ['"a,b",c', '"a""b",c', 'a"b,c', '"a,c', 'a",c', '"a"b,c', '",c', '"",a"', '"a","', '"a"']
)
def test_difficult_quotes_go_the_slow_road(line: str) -> None:
    dialect = Dialect(",", None, 2, 0, 1, None, None)
    assert plain_columns(Block(f"x,y\n{line}\nx,y\n".encode(), 1), dialect) is None


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_blocks_are_whole_lines(size: int) -> None:
    content = b"a\nbb\n\nccc\ndddd"
    blocks = list(whole_lines(from_bytes(content, "a"), b"", 5, size))
    assert b"".join(block.data for block in blocks) == content
    assert all(block.data.endswith(b"\n") for block in blocks[:-1])
    seen = 5
    for block in blocks:
        assert block.first_line == seen
        seen += block.data.count(b"\n")


def test_a_file_of_several_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(0)
    rows = "".join(
        f"u{u},i{i},{u % 5},{1_000_000_000 + n}\n" for n, (u, i) in enumerate(draw.integers(0, 300, (30_000, 2)))
    )
    whole = read(tmp_path, "a.csv", b"user,item,rating,time\n" + rows.encode())
    monkeypatch.setattr("coterie.data.blocks.whole_lines.__defaults__", (1000,))
    parts = read(tmp_path, "a.csv", b"user,item,rating,time\n" + rows.encode())
    assert whole.sha256 == parts.sha256
