# ruff: noqa: E501  (one case, one line)
"""Files that are wrong in one way each: every one is named, with its place, and none ends in a traceback."""

from __future__ import annotations

import gzip
import io
import zipfile
from pathlib import Path

import pytest

from coterie.data import load
from coterie.errors import CoterieError

HEAD = b"user_id,item_id,rating,timestamp\n"
GOOD = b"u1,i1,5,881250949\n"


def zipped(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


# (what is wrong, file name, content, what the message says; {f} stands for the path)
MALFORMED: list[tuple[str, str, bytes, str]] = [
    ("empty file", "a.csv", b"", "{f}: is empty, expected a header"),
    ("only blank lines", "a.csv", b"\n\n  \n", "{f}: is empty, expected a header"),
    ("only a BOM", "a.csv", b"\xef\xbb\xbf", "{f}: is empty, expected a header"),
    ("header only", "a.csv", HEAD, "{f}: holds no interactions, expected one on each line after the header."),
    ("header without line end", "a.csv", HEAD.strip(), "{f}: holds no interactions"),
    ("one column", "a.csv", b"user_id\nu1\n", "{f}:1:1: 'user_id', expected at least a user and an item column"),
    ("no item column", "a.csv", b"user_id,rating\nu1,5\n", "{f}:1:1: 'user_id,rating', expected a header with a user and an item column, and item is missing"),
    ("no user column", "a.tsv", b"item_id\trating\ni1\t5\n", "and user is missing; name the columns of this file with --columns"),
    ("unknown names", "a.csv", b"who,what\nu1,i1\n", "{f}:1:1: 'who,what', expected a header with a user and an item column, and user and item are missing"),
    ("no header, two columns", "a.csv", b"1,2\n3,4\n", "{f}:1:1: '1,2', expected a header"),
    ("no header, times not plain", "a.csv", b"1,2,3,4\n3,4,5,6\n", "{f}:1:1: '1,2,3,4', expected a header"),
    ("same name twice", "a.csv", b"user_id,user_id,item_id\na,b,c\n", "{f}:1:2: 'user_id', expected one user column but 'user_id', 'user_id' could all be it; say which by number, e.g. --columns user=1."),
    ("two items", "a.csv", b"user,asin,isbn\na,b,c\n", "{f}:1:3: 'isbn', expected one item column but 'asin', 'isbn' could all be it"),
    ("rating a word", "a.csv", HEAD + GOOD + b"u1,i2,five,881250949\n", "{f}:3:3: rating 'five', expected a finite number of 0 or more; correct it or remove the line"),
    ("rating not a number", "a.csv", HEAD + b"u1,i2,nan,881250949\n", "{f}:2:3: rating 'nan', expected a finite number of 0 or more"),
    ("rating infinite", "a.csv", HEAD + b"u1,i2,inf,881250949\n", "{f}:2:3: rating 'inf', expected a finite number of 0 or more"),
    ("rating minus infinity", "a.csv", HEAD + b"u1,i2,-Infinity,881250949\n", "{f}:2:3: rating '-Infinity', expected a finite number"),
    ("rating negative", "a.csv", HEAD + b"u1,i2,-1,881250949\n", "{f}:2:3: rating '-1', expected a number of 0 or more; shift the scale"),
    ("rating too large", "a.csv", HEAD + b"u1,i2,1e39,881250949\n", "{f}:2:3: rating '1e39', expected at most 3.4e+38"),
    ("rating beyond floats", "a.csv", HEAD + b"u1,i2,1e999,881250949\n", "{f}:2:3: rating '1e999', expected at most 3.4e+38"),
    ("rating empty", "a.csv", HEAD + GOOD + b"u1,i2,,881250949\n", "{f}:3:3: rating '', expected a number of 0 or more, as in the other rows"),
    ("rating with decimal comma", "a.csv", HEAD.replace(b",", b";") + b"u1;i1;3,5;881250949\n", "{f}:2:3: rating '3,5', expected a finite number of 0 or more; write a decimal point, not a comma"),
    ("rating with underscore", "a.csv", HEAD + b"u1,i2,1_000,881250949\n", "{f}:2:3: rating '1_000', expected a finite number"),
    ("rating in other digits", "a.csv", HEAD + "u1,i2,٣,881250949\n".encode(), "{f}:2:3: rating '٣', expected a finite number"),
    ("rating with an odd space", "a.tsv", HEAD.replace(b",", b"\t") + b"u1\ti2\t5\x1f\t881250949\n", "{f}:2:3: rating '5\\x1f', expected a finite number"),
    ("rating hexadecimal", "a.csv", HEAD + b"u1,i2,0x5,881250949\n", "{f}:2:3: rating '0x5', expected a finite number"),
    ("rating per cent", "a.csv", HEAD + b"u1,i2,50%,881250949\n", "{f}:2:3: rating '50%', expected a finite number"),
    ("rating where none before", "a.csv", HEAD + b"u1,i1,,1000000000\n" * 3 + b"u1,i2,4,1000000000\n", "{f}:5:3: rating '4', expected no rating, as in the other rows; give every row a rating, or none"),
    ("time where there is none", "a.csv", HEAD + b"u1,i1,5,\n" * 3 + b"u1,i2,4,1000000000\n", "{f}:5:4: timestamp '1000000000', expected no time, as in the other rows"),
    ("time a word", "a.csv", HEAD + b"u1,i2,5,yesterday\n", "{f}:2:4: timestamp 'yesterday', expected a number of seconds (or milliseconds) since 1970; convert dates"),
    ("time a date", "a.csv", HEAD + b"u1,i2,5,2011-05-06\n", "{f}:2:4: timestamp '2011-05-06', expected a number of seconds"),
    ("time empty", "a.csv", HEAD + GOOD + b"u1,i2,5,\n", "{f}:3:4: timestamp '', expected a time, as in the other rows"),
    ("time not a number", "a.csv", HEAD + GOOD + b"u1,i2,5,NaN\n", "{f}:3:4: timestamp 'NaN', expected a number of seconds"),
    ("time infinite", "a.csv", HEAD + GOOD + b"u1,i2,5,1e999\n", "{f}:3:4: timestamp '1e999', expected a time in seconds, as in the first rows; use one unit"),
    ("time in another unit", "a.csv", HEAD + GOOD * 3 + b"u1,i2,5,881250949000\n", "{f}:5:4: timestamp '881250949000', expected a time in seconds, as in the first rows; use one unit throughout"),
    ("time too long", "a.csv", HEAD + GOOD * 3 + b"u1,i2,5," + b"9" * 50 + b"\n", "{f}:5:4: timestamp '99999999999999999999999999999999999999999999999999', expected a time in seconds"),
    ("user empty", "a.csv", HEAD + GOOD + b",i2,5,881250949\n", "{f}:3:1: user '', expected an id; fill it in or remove the line"),
    ("item empty", "a.csv", HEAD + GOOD + b"u1,,5,881250949\n", "{f}:3:2: item '', expected an id"),
    ("item only spaces", "a.csv", HEAD + GOOD + b"u1,  ,5,881250949\n", "{f}:3:2: item '  ', expected an id"),
    ("item quoted and empty", "a.csv", HEAD + GOOD + b'u1,"",5,881250949\n', "{f}:3:2: item '', expected an id"),
    ("only separators", "a.csv", HEAD + GOOD + b",,,\n", "{f}:3:1: user '', expected an id"),
    ("NUL in an id", "a.csv", HEAD + GOOD + b"u1,i\x002,5,881250949\n", "{f}:3:2: a NUL character, expected text; remove it"),
    ("control sign in an id", "a.csv", HEAD + GOOD + b"u1,i\x072,5,881250949\n", "{f}:3:2: item 'i\\x072', expected an id without control characters"),
    ("tab in an id", "a.csv", HEAD + GOOD + b"u\t1,i2,5,881250949\n", "{f}:3:1: user 'u\\t1', expected an id without control characters"),
    ("separator sign of the hash in an id", "a.tsv", HEAD.replace(b",", b"\t") + b"u\x1f1\ti2\t5\t881250949\n", "{f}:2:1: user 'u\\x1f1', expected an id without control characters"),
    ("carriage return inside", "a.csv", HEAD + GOOD + b"u1,i\r2,5,881250949\n", "{f}:3:2: a carriage return inside the line, expected text"),
    ("too few fields", "a.csv", HEAD + GOOD + b"u1,i2\n", "{f}:3:2: 'u1,i2' has 2 fields, expected 4; complete or remove the line"),
    ("one field", "a.tsv", HEAD.replace(b",", b"\t") + b"u1\n", "{f}:2:1: 'u1' has 1 field, expected 4"),
    ("too many fields", "a.csv", HEAD + GOOD + b"u1,i2,5,881250949,x\n", "{f}:3:5: 'u1,i2,5,881250949,x' has 5 fields, expected 4; quote fields that contain the separator"),
    ("fields moved between lines", "a.csv", HEAD + b"u1,i1,5\nu2,i2,5,881250949,7\n", "{f}:2:3: 'u1,i1,5' has 3 fields, expected 4"),
    ("another separator further on", "a.csv", HEAD + GOOD + b"u1;i2;5;881250949\n", "{f}:3:1: 'u1;i2;5;881250949' has 1 field, expected 4"),
    ("quote not closed", "a.csv", HEAD + GOOD + b'u1,"i2,5,881250949\n', "{f}:3:2: 'u1,\"i2,5,881250949': a quoted field is not closed, expected closed quotes"),
    ("text after a quote", "a.csv", HEAD + b'u1,"i2"x,5,881250949\n', "a quoted field goes on after its closing quote, expected closed quotes"),
    ("line end inside quotes", "a.csv", HEAD + b'u1,"i\n2",5,881250949\n', "{f}:2:2: 'u1,\"i': a quoted field is not closed"),
    ("latin-1 in a row", "a.csv", HEAD + GOOD + b"u1,caf\xe9,5,881250949\n", "{f}:3:2: byte b'\\xe9', expected UTF-8 text; convert the file (iconv -f latin1 -t utf-8)"),
    ("latin-1 in the header", "a.csv", b"user_id,item_id,caf\xe9\nu,i,1\n", "{f}:1:1: byte b'\\xe9', expected UTF-8 text"),
    ("cut in the middle of a sign", "a.csv", HEAD + "u1,é".encode()[:-1], "{f}:2:2: byte b'\\xc3', expected UTF-8 text"),
    ("overlong UTF-8", "a.csv", HEAD + b"u\xc0\x80,i,5,881250949\n", "{f}:2:1: byte b'\\xc0', expected UTF-8 text"),
    ("UTF-16 with BOM", "a.csv", (HEAD + GOOD).decode().encode("utf-16"), "{f}: is UTF-16 text; save it as UTF-8"),
    ("UTF-16 without BOM", "a.csv", (HEAD + GOOD).decode().encode("utf-16-le"), "{f}: is UTF-16 text; save it as UTF-8"),
    ("old Mac line ends", "a.csv", (HEAD + GOOD).replace(b"\n", b"\r"), "{f}: has line ends of old Macs (CR only)"),
    ("an endless line", "a.csv", b"u" * 3_000_000, "{f}:1:1: a line of more than 1,048,576 bytes"),
    ("an endless line further on", "a.csv", HEAD + GOOD + b"u" * 20_000_000, "{f}:3:1: a line of more than 1,048,576 bytes"),
    ("a PNG", "a.csv", b"\x89PNG\r\n\x1a\n" + bytes(100), "{f}: is a PNG image. Expected text in columns"),
    ("a PDF", "a.csv", b"%PDF-1.7\n", "{f}: is a PDF document"),
    ("a pickle", "a.csv", b"\x80\x04\x95\x10\x00", "{f}: is a Python pickle, which is never read here"),
    ("SQLite", "a.csv", b"SQLite format 3\0" + bytes(100), "{f}: is an SQLite database; export the table as CSV"),
    ("bzip2", "a.csv", b"BZh91AY&SY", "{f}: is bzip2-compressed; unpack it first"),
    ("zstd", "a.csv", b"\x28\xb5\x2f\xfd\x24\x00", "{f}: is zstd-compressed; unpack it first"),
    ("random bytes", "a.csv", bytes(range(256)) * 4, "{f}: is a binary file. Expected text in columns"),
    ("a web page", "a.csv", b"<!DOCTYPE html>\n<html>404</html>", "{f}: is a web page or XML, not a table"),
    ("JSON", "a.csv", b'{"user_id": 1, "item_id": 2}\n', "{f}: is JSON, expected text in columns"),
    ("gz that is none", "a.csv.gz", HEAD + GOOD, "{f}: is named .gz but is not gzip"),
    ("gz cut off", "a.csv.gz", gzip.compress(HEAD + GOOD * 5000)[:-20], "{f}: the gzip file is cut off before its end; copy or download it again."),
    ("gz with a wrong sum", "a.csv.gz", gzip.compress(HEAD + GOOD)[:-8] + bytes(8), "{f}: the gzip file is damaged"),
    ("gz of nothing", "a.csv.gz", gzip.compress(b""), "{f}: is empty, expected a header"),
    ("gz twice", "a.csv.gz", gzip.compress(gzip.compress(HEAD + GOOD)), "{f}: is compressed twice; unpack it once."),
    ("zip that is none", "a.zip", HEAD + GOOD, "{f}: is named .zip but is no zip archive"),
    ("zip cut off", "a.zip", zipped({"a.csv": HEAD + GOOD})[:-30], "{f}: the zip file is damaged"),
    ("zip of two", "a.zip", zipped({"a.csv": HEAD + GOOD, "b.csv": HEAD}), "{f}: the zip holds 2 files (a.csv, b.csv), expected exactly one; unpack it"),
    ("zip of none", "a.zip", zipped({}), "{f}: the zip holds 0 files (none), expected exactly one"),
    ("Excel", "a.xlsx", zipped({"[Content_Types].xml": b"x", "b": b"y"}), "{f}: is an Excel workbook; save the sheet as CSV."),
    ("Parquet cut off", "a.parquet", b"PAR1" + bytes(40), "{f}: the Parquet file is damaged or not complete"),
    ("Parquet inside gz", "a.parquet.gz", gzip.compress(b"PAR1" + bytes(40)), "{f}: is Parquet inside gzip; unpack it first"),
    (".inter without an item", "a.inter", b"user_id:token\trating:float\nu1\t5\n", "and item is missing"),
    ("double colons, one missing", "a.dat", b"1::2::5::978300760\n" * 20 + b"1:2::5::978300760\n", "{f}:21:3: '1:2::5::978300760' has 3 fields, expected 4"),
    ("no header, a bad rating", "a.csv", b"u,i,5,978300760\n" * 20 + b"u,j,x,978300760\n", "{f}:21:3: rating 'x', expected a finite number of 0 or more"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "says"), [row[1:] for row in MALFORMED], ids=[row[0] for row in MALFORMED])
def test_named_with_its_place(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(CoterieError) as error:
        load(path)
    assert says.replace("{f}", str(path)) in str(error.value)
    assert error.value.__cause__ is None and (error.value.__context__ is None or error.value.__suppress_context__)


def test_there_are_enough_of_them() -> None:
    assert len(MALFORMED) >= 60
    assert len({row[0] for row in MALFORMED}) == len(MALFORMED)


def test_a_bad_first_row_is_not_taken_for_a_header(tmp_path: Path) -> None:
    path = tmp_path / "u.data"
    path.write_bytes(b"1\t2\tx\t881250949\n1\t3\t4\t881250949\n")
    with pytest.raises(CoterieError) as error:
        load(path, columns={"user": "1", "item": "2", "rating": "3", "timestamp": "4"})
    assert str(error.value).startswith(f"{path}:1:3: rating 'x', expected a finite number of 0 or more")


def test_first_twenty_and_the_total(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(HEAD + b"u1,i1,x,1\n" * 50 + GOOD)
    with pytest.raises(CoterieError) as error:
        load(path)
    lines = str(error.value).split("\n")
    assert len(lines) == 22
    assert lines[0].startswith(f"{path}:2:3: rating 'x', expected") and lines[19].startswith(f"{path}:21:3: ")
    assert lines[20] == "... and 30 more"
    assert lines[21].startswith(f"50 rows of {path} cannot be read. Mend them, or read the others")


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("missing.csv", "missing.csv: there is no such file."),
        ("some/where.csv", "some/where.csv: there is no such file."),
        ("ml100k", "unknown data set 'ml100k'. Did you mean 'ml-100k'? Known: synthetic, ml-100k, ml-1m,"),
        ("a\0b.csv", "cannot be opened"),
    ],
)
def test_what_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, says: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CoterieError) as error:
        load(source)
    assert says in str(error.value)


def test_a_directory(tmp_path: Path) -> None:
    with pytest.raises(CoterieError) as error:
        load(tmp_path)
    assert str(error.value).startswith(f"{tmp_path}: is a directory; name the file in it.")


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        (
            {"user": "who", "item": "nowhere"},
            "{f}:1:1: no column 'nowhere', expected one of 'who', 'what', 'who2', 'who2'",
        ),
        ({"user": "who"}, "columns: name at least user and item"),
        (
            {"user": "who", "item": "what", "shoe": "x"},
            "columns: unknown key 'shoe', expected some of user, item, rating",
        ),
        ({"user": "1", "item": "9"}, "{f}:1:1: 4 columns separated by comma, expected at least 9; correct --columns."),
        (
            {"user": "who2", "item": "what"},
            "{f}:1:4: 'who2', expected the user column once but the header names it 2 times",
        ),
    ],
)
def test_columns_that_do_not_fit(tmp_path: Path, columns: dict[str, str], says: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"who,what,who2,who2\na,b,c,d\n")
    with pytest.raises(CoterieError) as error:
        load(path, columns=columns)
    assert says.replace("{f}", str(path)) in str(error.value)
