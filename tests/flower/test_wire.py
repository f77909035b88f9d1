"""Messages: what goes in comes out, and anything else is refused by name."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.algorithms.interface import Download, Upload
from coterie.algorithms.server import add, empty_sum
from coterie.engine.flower import wire
from coterie.engine.flower.wire import Head, Message, Refused

HEAD = Head("upload", "run", 3, "spec", about={"form": "single"})


def some_upload(seed: int, clients: int, items: int, width: int, share: float) -> Upload:
    draw = np.random.default_rng(seed)
    lists = [draw.permutation(items)[: draw.binomial(items, share)].astype(np.int32) for _ in range(clients)]
    indptr = np.concatenate([[0], np.cumsum([len(one) for one in lists])])
    rows = np.concatenate(lists)
    values = draw.normal(0, 0.01, (len(rows), width)).astype(np.float32)
    return Upload(indptr, rows, values, draw.normal(size=(clients, 2)).astype(np.float32))


def carried(upload: Upload, items: int, half: bool = False) -> Message:
    body, about = wire.upload_arrays(upload, items, half)
    return wire.unpack(wire.pack(HEAD._replace(about=about), body))


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 70), st.integers(1, 9), st.floats(0, 1))
def test_an_upload_arrives_as_it_left(seed: int, clients: int, items: int, width: int, share: float) -> None:
    upload = some_upload(seed, clients, items, width, share)
    found = wire.upload_from(carried(upload, items), items, width, 2)
    one, other = empty_sum(items, width, 2), empty_sum(items, width, 2)
    add(one, upload, clients)
    add(other, found, clients)
    assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    assert np.array_equal(found.indptr, upload.indptr)


def test_bytes_are_the_simulators_count_within_five_per_cent() -> None:
    for share in (0.05, 0.5, 1.0):
        upload = some_upload(0, 40, 500, 33, share)
        sent = len(wire.pack(HEAD, wire.upload_arrays(upload, 500, False)[0]))
        assert sent == pytest.approx(upload.bytes_per_client(500).sum(), rel=0.05)


def test_half_precision_halves_the_bytes_and_keeps_three_digits() -> None:
    upload = some_upload(0, 10, 500, 33, 0.3)
    values = upload.values * np.float32(1e-6)  # far below what float16 alone can say
    message = carried(upload._replace(values=values), 500, half=True)
    found = wire.upload_from(message, 500, 33, 2)
    assert np.abs(found.values - values).max() < 1e-3 * np.abs(values).max()
    assert message.body["values"].nbytes * 2 == values.nbytes


def test_a_sum_arrives_as_it_left() -> None:
    total = empty_sum(50, 4, 2)
    add(total, some_upload(3, 5, 50, 4, 0.3), 5)
    message = wire.unpack(wire.pack(HEAD, wire.sum_arrays(total)))
    found = wire.sum_from(message, 50, 4, 2, 5, 2.0**62 / 5)
    assert all(np.array_equal(a, b) for a, b in zip(total, found, strict=True))


def test_a_download_arrives_as_it_left() -> None:
    sent = Download(np.ones((4, 2), np.float32), np.zeros(3, np.float32), np.ones((2, 4, 2), np.float32))
    found = wire.download_from(wire.unpack(wire.pack(HEAD, wire.download_arrays(sent))).body)
    assert all(np.array_equal(a, b) for a, b in zip(sent, found, strict=True))


def test_a_thousand_flipped_bits_and_cut_messages_are_refused() -> None:
    data = wire.pack(HEAD, wire.upload_arrays(some_upload(1, 2, 30, 4, 0.5), 30, False)[0])
    draw = np.random.default_rng(0)
    for _ in range(1000):
        broken = bytearray(data)
        broken[draw.integers(len(data))] ^= 1 << int(draw.integers(8))
        with pytest.raises(Refused) as told:
            wire.unpack(bytes(broken))
        assert told.value.kind == "damaged"
    for size in range(0, len(data), 97):
        with pytest.raises(Refused):
            wire.unpack(data[:size])


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"values": np.full((1, 4), np.nan, np.float32)}, "not-finite"),
        ({"values": np.full((1, 4), np.inf, np.float32)}, "not-finite"),
        ({"dense": np.full((1, 2), np.nan, np.float32)}, "not-finite"),
        ({"values": np.zeros((1, 5), np.float32)}, "shape"),
        ({"values": np.zeros((2, 4), np.float32)}, "shape"),
        ({"values": np.zeros((1, 4), np.float64)}, "dtype"),
        ({"rows": np.array([30], np.int32)}, "rows"),
        ({"rows": np.array([-1], np.int32)}, "rows"),
        ({"counts": np.array([-1], np.int32)}, "shape"),
        ({"dense": np.zeros((2, 2), np.float32)}, "shape"),
    ],
)
def test_a_wrong_upload_is_refused_by_name(change: dict[str, np.ndarray], kind: str) -> None:
    body = {
        "counts": np.array([1], np.int32), "rows": np.array([3], np.int32), "values": np.ones((1, 4), np.float32),
        "dense": np.zeros((1, 2), np.float32),
    }  # fmt: skip
    assert wire.upload_from(Message(HEAD, body), 30, 4, 2).rows.tolist() == [3]
    with pytest.raises(Refused) as told:
        wire.upload_from(Message(HEAD, body | change), 30, 4, 2)
    assert told.value.kind == kind


def test_a_row_sent_twice_is_refused() -> None:
    body = {
        "counts": np.array([2], np.int32), "rows": np.array([3, 3], np.int32), "values": np.ones((2, 4), np.float32),
        "dense": np.zeros((1, 2), np.float32),
    }  # fmt: skip
    with pytest.raises(Refused) as told:
        wire.upload_from(Message(HEAD, body), 30, 4, 2)
    assert told.value.kind == "rows"


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"clients": np.array([6], np.int64)}, "clients"),
        ({"touched": np.array([6], np.int32)}, "clients"),
        ({"values": np.full((1, 4), 2**62, np.int64)}, "too-large"),
        ({"values": np.full((1, 4), -(2**63), np.int64)}, "too-large"),
        ({"values": np.zeros((1, 4), np.float32)}, "dtype"),
        ({"rows": np.array([50], np.int32)}, "rows"),
        ({"dense": np.zeros(3, np.int64)}, "shape"),
    ],
)
def test_a_wrong_sum_is_refused_by_name(change: dict[str, np.ndarray], kind: str) -> None:
    body = {
        "rows": np.array([7], np.int32), "values": np.ones((1, 4), np.int64), "touched": np.array([2], np.int32),
        "dense": np.zeros(2, np.int64), "clients": np.array([2], np.int64),
    }  # fmt: skip
    assert wire.sum_from(Message(HEAD, body), 50, 4, 2, 5, 2.0**62 / 10).clients[0] == 2
    with pytest.raises(Refused) as told:
        wire.sum_from(Message(HEAD, body | change), 50, 4, 2, 5, 2.0**62 / 10)
    assert told.value.kind == kind


@pytest.mark.parametrize("field", ["version", "run", "spec", "round", "kind"])
def test_a_header_of_something_else_is_refused_by_name_and_both_are_named(field: str) -> None:
    other = HEAD._replace(**{field: 7 if field == "round" else "another"})
    with pytest.raises(Refused, match=r"another|7") as told:
        wire.check(other, HEAD)
    assert told.value.kind == field
