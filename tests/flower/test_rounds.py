"""Rounds without a network: equal to the simulator, and what faults do to them. Real processes: test_processes.py."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coterie
from coterie.algorithms import CATALOGUE, make
from coterie.data.interactions import Interactions
from coterie.engine.flower import wire
from coterie.engine.flower.coordinator import Stopped
from coterie.engine.flower.node import Node
from coterie.engine.flower.spec import check_federated
from coterie.engine.flower.store import NodeStore
from coterie.engine.simulate import simulate, start
from coterie.errors import CoterieError
from coterie.protocol import Protocol, prepare, resolve
from coterie.runs import tensors
from tests.flower.loop import Loop, federation, same_arrays, simulated

SMALL = {"dim": 8, "negatives": 4}


@pytest.fixture(scope="module")
def world() -> Interactions:
    return coterie.synthetic(users=40, items=50, seed=1, shortest=5, longest=20)


def fedmf(**settings: Any) -> Any:
    return make("fedmf", **{**SMALL, **settings})


# Equal up to rounding only: a product of matrices is added up in another order when a node asks for fewer rows.
BY_BLAS = {"metamf": "the server generates a table for each client by BLAS, whose rounding depends on the batch"}
FEDERATED = [name for name, entry in CATALOGUE.items() if ".central." not in entry[0]]


@pytest.mark.parametrize("name", FEDERATED)
def test_every_federated_system_gives_the_simulators_bytes(name: str, world: Interactions, tmp_path: Path) -> None:
    algorithm = make(name)
    if hasattr(algorithm, "dim"):
        algorithm = replace(algorithm, dim=8)
    if getattr(algorithm, "triples", None) == "average":  # over the clients at hand, whom a node does not know
        algorithm = replace(algorithm, triples=5)
    server, _ = federation(tmp_path, world, algorithm, rounds=2)
    if algorithm.plan(prepare(world, Protocol(), 0).history, 1.0, 0, 1) is not None:
        pytest.skip(f"a round of {name} in the simulator is an epoch of many exchanges, in a federation it is one")
    same = server.run()["model_sha256"] == simulated(world, algorithm, 2, tmp_path)
    if name in BY_BLAS and not same:
        expected = tensors.load(tmp_path / "simulated", server.server)
        pairs = zip(tensors.leaves(server.server), tensors.leaves(expected), strict=True)
        assert all(np.allclose(one, other, rtol=1e-3, atol=1e-5) for (_, one), (_, other) in pairs)
        return  # see BY_BLAS: the same numbers, not the same bytes
    assert same


@pytest.mark.parametrize("name", FEDERATED)
def test_a_device_scores_with_what_it_has_seen_as_the_server_would(name: str, world: Interactions) -> None:
    algorithm = make(name)
    history = prepare(world, Protocol(), 0).history
    state = start(algorithm, history, 0)
    for one in simulate(algorithm, history, state, range(1, 3), 0, 1.0):
        state = one.state
    everybody = np.arange(history.n_clients)
    seen = algorithm.seen(algorithm.download(state.server, everybody, 3), history.n_items, 0)
    assert np.array_equal(
        algorithm.score(seen, state.clients, history, everybody),
        algorithm.score(state.server, state.clients, history, everybody),
    )


@pytest.mark.parametrize("send", ["sum", "single", "secure"])
@pytest.mark.parametrize("nodes", [3, 5])
def test_however_uploads_travel_the_model_is_the_simulators(
    send: str, nodes: int, world: Interactions, tmp_path: Path
) -> None:
    server, _ = federation(tmp_path, world, fedmf(), nodes, send=send)
    assert server.run()["model_sha256"] == simulated(world, fedmf(), 3, tmp_path)
    assert server.ledger.events("refused") == []


def test_private_state_on_the_nodes_is_the_simulators(world: Interactions, tmp_path: Path) -> None:
    algorithm = make("fedrap", **SMALL)
    federation(tmp_path, world, algorithm)[0].run()
    history = prepare(world, Protocol(), 0).history
    state = start(algorithm, history, 0)
    for one in simulate(algorithm, history, state, range(1, 4), 0):
        state = one.state
    first = 0
    for number in range(3):
        node = Node(tmp_path / f"node-{number}")
        joined = node.joined("test")
        mine = node.state(joined).clients
        n = joined.prepared.history.n_clients
        assert np.array_equal(mine.user, state.clients.user[first : first + n])
        assert all(np.array_equal(mine.own.table(i), state.clients.own.table(first + i)) for i in range(n))
        first += n
    assert first == history.n_clients


def test_metrics_of_the_nodes_add_up_to_the_simulators(world: Interactions, tmp_path: Path) -> None:
    server, _ = federation(tmp_path, world, fedmf(), evaluate_every=2)
    found = server.run()["metrics"]
    run = coterie.run(fedmf(), world, rounds=3, evaluate_every=3, out=tmp_path / "run", threads=1)
    for part in ("validation", "test"):
        for kind in ("full", "sampled"):
            for key in ("HR@10", "NDCG@10"):
                assert found[part][kind][key] == pytest.approx(run.rounds[-1][part][kind][key], abs=1e-12)
    assert [one["round"] for one in server.ledger.metrics()] == [2, 3]


def test_filters_of_the_paper_protocol_give_the_same_bytes(tmp_path: Path) -> None:
    world = coterie.synthetic(users=40, items=80, seed=1, shortest=10, longest=40)
    from coterie.engine.flower.ledger import Ledger
    from coterie.engine.flower.setup import catalogue, found, shards
    from coterie.engine.flower.spec import Terms

    protocol = resolve("paper:fedrap", rating_threshold=2.0)
    items, titles = catalogue(world, protocol, 0)
    assert len(items) <= world.n_items
    terms = Terms(rounds=2, min_nodes=3, evaluate_every=0, await_nodes=5)
    ledger = found(tmp_path / "server", fedmf(), items, titles, terms, protocol=protocol, reproducible=True)
    members = {}
    for number, path in enumerate(shards(world, 3, tmp_path / "shards")):
        NodeStore.create(tmp_path / f"n{number}", path, place=number)
        members[number] = Node(tmp_path / f"n{number}")
    from coterie.engine.flower.coordinator import Coordinator

    assert isinstance(ledger, Ledger)
    assert Coordinator(ledger, Loop(members)).run()["model_sha256"] == simulated(world, fedmf(), 2, tmp_path, protocol)


def test_a_nodes_own_secret_changes_its_draws(world: Interactions, tmp_path: Path) -> None:
    hashes = {
        federation(tmp_path / str(n), world, fedmf(), reproducible=False)[0].run()["model_sha256"] for n in range(2)
    }
    assert len(hashes) == 2
    assert simulated(world, fedmf(), 3, tmp_path) not in hashes


def test_no_id_and_no_history_in_any_message_or_server_file(tmp_path: Path) -> None:
    world = coterie.synthetic(users=30, items=50, seed=1, shortest=5, longest=20)
    names = [f"CANARY-{n:03d}-person" for n in range(world.n_users)]
    world = replace(world, user_ids=names)
    for send in ("sum", "single", "secure"):
        home = tmp_path / send
        server, loop = federation(home, world, fedmf(), send=send, reproducible=False, evaluate_every=1)
        shard = home / "shards" / "node-1" / "interactions.csv"
        with shard.open("a") as file:
            file.write("CANARY-999-person,CANARY-secret-item,1.0,1600000000\n")
        server.run()
        node = Node(home / "node-1")
        assert node.store.unknown_items("test") == 1  # counted there, and kept there
        crossed = b"".join(loop.log)
        assert world.item_ids[3].encode() in crossed  # the catalogue did cross, so the search can find things
        assert b"CANARY" not in crossed
        for path in (home / "server").rglob("*"):
            assert path.is_dir() or b"CANARY" not in path.read_bytes()
        assert any(b"CANARY" in path.read_bytes() for path in (home / "node-1").rglob("*") if path.is_file())


def test_a_node_of_one_person_tells_no_metrics(tmp_path: Path) -> None:
    world = coterie.synthetic(users=3, items=50, seed=1, shortest=5, longest=20)
    server, loop = federation(tmp_path, world, fedmf(), reproducible=False, evaluate_every=1)
    assert server.run()["metrics"] == {}
    assert not any("metrics" in wire.unpack(one).head.about for one in loop.log)


def test_a_person_with_two_items_trains_and_is_recommended_to(tmp_path: Path) -> None:
    world = coterie.synthetic(users=12, items=50, seed=1, shortest=5, longest=20)
    server, _ = federation(tmp_path, world, fedmf())
    mine = [world.item_ids[3], world.item_ids[9]]
    path = tmp_path / "shards" / "node-2" / "interactions.csv"
    path.write_text("user_id,item_id,rating,timestamp\n" + "".join(f"me,{item},1,{n}\n" for n, item in enumerate(mine)))
    server.run()
    picked = Node(tmp_path / "node-2").recommend(n=5)
    assert len(picked) == 5 and not {item for item, *_ in picked} & set(mine)


def test_central_noise_is_the_simulators_and_is_charged_before_release(world: Interactions, tmp_path: Path) -> None:
    from coterie.privacy.channel import Guard
    from coterie.privacy.spec import PrivacySpec

    said = PrivacySpec(mechanism="central", clip=0.5, noise=0.8, sampling=1.0, seeded_noise=True).resolved(3)
    server, _ = federation(tmp_path, world, fedmf(), privacy=said)
    summary = server.run()
    history = prepare(world, Protocol(), 0).history
    guard = Guard(said, fedmf(), history, history.n_clients, tmp_path / "simulator", 0)
    state = start(fedmf(), history, 0)
    for one in simulate(fedmf(), history, state, range(1, 4), 0, path=guard.path, channel=guard.channel):
        state = one.state
    assert same_arrays(server.server, state.server)
    assert summary["privacy"]["epsilon"] == pytest.approx(guard.central.spent()["epsilon"])  # type: ignore[union-attr]
    assert [one["privacy"]["releases"] for one in server.ledger.rounds()] == [1, 2, 3]
    assert summary["privacy"]["busiest"] == 3  # the server cannot know better
    lines = (tmp_path / "server" / "privacy" / "ledger.jsonl").read_text().splitlines()
    shutil.rmtree(tmp_path / "server" / "checkpoints")  # died before its checkpoint: the same noise, charged once
    again, _ = federation(tmp_path, world, fedmf(), privacy=said, rounds=3)
    again.run()
    assert same_arrays(again.server, state.server)
    assert (tmp_path / "server" / "privacy" / "ledger.jsonl").read_text().splitlines() == lines


def test_local_noise_is_the_nodes_own(world: Interactions, tmp_path: Path) -> None:
    from coterie.privacy.spec import PrivacySpec

    said = PrivacySpec(mechanism="local-gaussian", clip=0.5, noise=1.0).resolved(1)
    server, _ = federation(tmp_path, world, fedmf(), privacy=said, rounds=1, send="single")
    server.run()
    keys = {(tmp_path / f"node-{n}" / "runs" / "test" / "privacy" / "key").read_bytes() for n in range(3)}
    assert len(keys) == 3
    moved = server.server.table - fedmf().init_server(world.n_items, 0).table
    assert np.isfinite(moved).all() and (np.abs(moved) > 0).all()  # noise on every number, whoever touched it


# --- faults ---------------------------------------------------------------------------------------------------------


def hash_of(server: Any) -> str | None:
    return server.ledger.model_hash()


def test_the_same_answer_twice_counts_once(world: Interactions, tmp_path: Path) -> None:
    twice = lambda node, question, answer: [answer, answer]  # noqa: E731
    server, _ = federation(tmp_path, world, fedmf(), fault=twice)
    assert server.run()["model_sha256"] == simulated(world, fedmf(), 3, tmp_path)
    assert {one["name"] for one in server.ledger.events("refused")} <= {"stranger", "duplicate"}
    assert server.ledger.events("refused")


def test_one_node_that_never_answers_costs_one_deadline_only(world: Interactions, tmp_path: Path) -> None:
    def silent(node: int, question: bytes, answer: bytes) -> list[bytes | None]:
        return [] if node == 101 and wire.unpack(question).head.kind == "step" else [answer]

    server, loop = federation(tmp_path, world, fedmf(), fault=silent, min_nodes=2, start_with=3, deadline=0.5)
    waits: list[int] = []  # the round in which the server waited for an answer
    pause = loop.pause

    def counted() -> None:
        waits.append(len(server.ledger.rounds()) + 1)
        pause()

    loop.pause = counted  # type: ignore[method-assign]
    server.run()
    assert [one["nodes"] for one in server.ledger.rounds()] == [2, 2, 2]
    assert [one["late"] for one in server.ledger.rounds()] == [1, 1, 1]
    assert set(waits) == {1}


def test_the_sum_over_survivors_is_exact(world: Interactions, tmp_path: Path) -> None:
    """A third of the nodes is lost in round 2: the model is the one the survivors alone make in that round."""

    def lossy(node: int, question: bytes, answer: bytes) -> list[bytes | None]:
        head = wire.unpack(question).head
        return [None] if node == 102 and head.kind == "step" and head.round == 2 else [answer]

    server, _ = federation(tmp_path, world, fedmf(), fault=lossy, min_nodes=2, start_with=3)
    server.run()
    history = prepare(world, Protocol(), 0).history
    state = start(fedmf(), history, 0)
    away = np.arange(26, 40)  # node 102's people
    for number in (1, 2, 3):
        for one in simulate(fedmf(), history, state, range(number, number + 1), 0):
            full = one.state
        if number == 2:  # the lost node trained too, but what it sent never came: take its part out of the sum
            from coterie.algorithms.server import add, empty_sum

            again = start(fedmf(), history, 0)
            for _ in simulate(fedmf(), history, again, range(1, 2), 0):
                pass
            stay = np.setdiff1d(np.arange(40), away)
            upload, _ = fedmf().client_step(again.clients, stay, history, fedmf().download(state.server, stay, 2), 2, 0)
            total = empty_sum(history.n_items, *(upload.values.shape[1], upload.dense.shape[1]))
            add(total, upload, 40)
            state = state._replace(server=fedmf().server_step(state.server, total, 2))
        else:
            state = full
    assert same_arrays(server.server, state.server)
    assert server.ledger.rounds()[1]["refused"] == {"lost": 1}


def test_below_min_nodes_nothing_changes(world: Interactions, tmp_path: Path) -> None:
    def lossy(node: int, question: bytes, answer: bytes) -> list[bytes | None]:
        head = wire.unpack(question).head
        return [None] if node != 100 and head.kind == "step" and head.round == 2 else [answer]

    server, _ = federation(tmp_path, world, fedmf(), fault=lossy, min_nodes=2, start_with=3, patience=2)
    with pytest.raises(Stopped, match="round 2 was abandoned 2 times"):
        server.run()
    lines = (tmp_path / "server" / "rounds.jsonl").read_bytes()
    assert len(lines.splitlines()) == 1
    assert hash_of(server) == simulated(world, fedmf(), 1, tmp_path)
    assert [one["round"] for one in server.ledger.events("abandoned")] == [2, 2]
    again, _ = federation(tmp_path, world, fedmf())  # the nodes are back: the same model as if nothing had been
    shutil.rmtree(tmp_path / "simulated")
    assert again.run()["model_sha256"] == simulated(world, fedmf(), 3, tmp_path)


def damage(kind: str, answer: bytes) -> bytes:
    """An answer with one thing wrong."""
    message = wire.unpack(answer)
    head, body = message.head, {key: value.copy() for key, value in message.body.items()}
    if kind == "not-finite":
        body["values"][0] = np.nan
    elif kind == "shape":
        body["values"] = body["values"][:, 1:]
    elif kind == "dtype":
        body["values"] = body["values"].astype(np.float64)
    elif kind == "too-large":
        body["values"][0] = 3e30
    elif kind == "version":
        head = head._replace(version="0.0.1")
    elif kind == "spec":
        head = head._replace(spec="0" * 64)
    elif kind == "run":
        head = head._replace(run="another")
    elif kind == "round":
        head = head._replace(round=1)
    elif kind == "stranger":
        head = head._replace(about=head.about | {"node": "somebody"})
    elif kind == "form":
        head = head._replace(about=head.about | {"form": "sum"})
    packed = wire.pack(head, body)
    return packed[:-5] if kind == "damaged" else packed


@pytest.mark.parametrize(
    "kind",
    ["not-finite", "shape", "dtype", "too-large", "version", "spec", "run", "round", "stranger", "form", "damaged"],
)
def test_a_wrong_answer_is_refused_by_name_and_the_others_kept(kind: str, world: Interactions, tmp_path: Path) -> None:
    def wrong(node: int, question: bytes, answer: bytes) -> list[bytes | None]:
        head = wire.unpack(question).head
        return [damage(kind, answer) if node == 101 and head.kind == "step" and head.round == 2 else answer]

    server, _ = federation(tmp_path, world, fedmf(), fault=wrong, send="single", min_nodes=2, start_with=3, rounds=2)
    server.run()
    assert [one["nodes"] for one in server.ledger.rounds()] == [3, 2]
    assert kind in {one["name"] for one in server.ledger.events("refused")}


def test_a_node_of_another_version_or_spec_is_told_so(world: Interactions, tmp_path: Path) -> None:
    server, loop = federation(tmp_path, world, fedmf(), rounds=1)
    server.run()
    node = loop.members[100]
    question = wire.unpack(next(one for one in loop.log if wire.unpack(one).head.kind == "step"))
    for change, name in (({"version": "9.9"}, "version"), ({"spec": "f" * 64}, "spec"), ({"run": "other"}, "run")):
        told = wire.unpack(node.handle(wire.pack(question.head._replace(**change), question.body))).head
        assert (told.kind, told.about["name"]) == ("refused", name)
    assert wire.unpack(node.handle(b"nonsense")).head.about["name"] == "damaged"


def test_a_late_answer_is_refused(world: Interactions, tmp_path: Path) -> None:
    kept: list[tuple[str, int, bytes | None]] = []
    server, loop = federation(tmp_path, world, fedmf(), min_nodes=2, start_with=3, deadline=0.3)
    push = loop.push

    def slow(node: int, data: bytes, seconds: float) -> str:
        request = push(node, data, seconds)
        head = wire.unpack(data).head
        if node == 102 and head.kind == "step" and head.round == 1:
            kept.append(loop.waiting.pop())
        if head.kind == "step" and head.round == 2 and kept:
            loop.waiting.append(kept.pop())
        return request

    loop.push = slow  # type: ignore[method-assign]
    server.run()
    assert [one["name"] for one in server.ledger.events("refused")] == ["late"]
    assert server.ledger.rounds()[0]["nodes"] == 2


class Crash(BaseException):
    """The process is gone: nothing catches it."""


@pytest.mark.parametrize("points", [range(1, 60, 7), pytest.param(range(1, 60), marks=pytest.mark.slow)])
def test_a_server_that_dies_at_any_write_goes_on_to_the_same_bytes(
    points: range, world: Interactions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Die before or after the k-th write of a state or a manifest, of the server's or of a node's."""
    algorithm = make("fedrap", **SMALL)
    expected = simulated(world, algorithm, 3, tmp_path)
    count = [0]
    real = {name: getattr(tensors, name) for name in ("save", "write_json")}

    def deadly(name: str, limit: int) -> Any:
        def call(*args: Any, **named: Any) -> Any:
            count[0] += 1
            if count[0] == limit:
                raise Crash
            found = real[name](*args, **named)
            count[0] += 1
            if count[0] == limit:
                raise Crash
            return found

        return call

    for limit in points:
        home = tmp_path / str(limit)
        federation(home, world, algorithm)
        count[0] = 0
        with monkeypatch.context() as patch:
            for name in real:
                patch.setattr(tensors, name, deadly(name, limit))
            try:
                federation(home, world, algorithm)[0].run()
                survived = True
            except Crash:
                survived = False
        server, _ = federation(home, world, algorithm)
        assert server.run()["model_sha256"] == expected, limit
        assert [one["round"] for one in server.ledger.rounds()] == [1, 2, 3]
        shutil.rmtree(home)
        if survived:
            return
    raise AssertionError("there are more writes than this test thought")


def test_a_node_back_after_a_restart_goes_on_from_its_disk(world: Interactions, tmp_path: Path) -> None:
    """Every message meets a fresh node object: nothing may live in memory."""
    server, loop = federation(tmp_path, world, make("fedrap", **SMALL))
    push = loop.push

    def fresh(node: int, data: bytes, seconds: float) -> str:
        loop.members[node] = Node(tmp_path / f"node-{node - 100}", threads=1)
        return push(node, data, seconds)

    loop.push = fresh  # type: ignore[method-assign]
    assert server.run()["model_sha256"] == simulated(world, make("fedrap", **SMALL), 3, tmp_path)


def test_a_question_asked_again_gets_the_same_bytes(world: Interactions, tmp_path: Path) -> None:
    server, loop = federation(tmp_path, world, fedmf())
    server.run()
    place = max(n for n, one in enumerate(loop.log) if wire.unpack(one).head.kind == "step")
    question, answer = loop.log[place : place + 2]
    node = loop.members[102]  # asked last
    before = node.store.sent("test")
    assert node.handle(question) == node.handle(question) == answer
    assert node.store.sent("test") == before


def test_a_server_without_its_last_round_still_gets_an_answer(world: Interactions, tmp_path: Path) -> None:
    """The checkpoint of round 3 is lost and another model asks for round 3: nodes train it from their round 2."""
    server, loop = federation(tmp_path, world, fedmf())
    server.run()
    question = next(
        wire.unpack(one)
        for one in loop.log
        if wire.unpack(one).head == wire.unpack(one).head._replace(kind="step", round=3)
    )
    changed = wire.pack(question.head, question.body | {"table": question.body["table"] * np.float32(0.5)})
    assert wire.unpack(loop.members[100].handle(changed)).head.kind == "upload"
    assert [one.round for one in loop.members[100].store.sent("test")] == [1, 2, 3]


def test_bytes_of_single_uploads_are_the_simulators_count_within_five_per_cent(
    world: Interactions, tmp_path: Path
) -> None:
    algorithm = make("fedmf", dim=32, negatives=4)
    server, _ = federation(tmp_path, world, algorithm, send="single")
    server.run()
    history = prepare(world, Protocol(), 0).history
    for one, done in zip(
        simulate(algorithm, history, start(algorithm, history, 0), range(1, 4), 0), server.ledger.rounds(), strict=True
    ):
        assert done["bytes"]["up"] == pytest.approx(one.bytes_up * history.n_clients, rel=0.05)


def test_without_flower_the_install_line_is_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    from coterie.engine.flower import commands, node_commands

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for verb in (
        commands.up,
        lambda: commands.server_start(Path("x")),
        lambda: node_commands.node_key_command(Path("x")),
    ):
        with pytest.raises(CoterieError, match=r"pip install 'coterie\[flower\]'"):
            verb()


# --- what a person sees ---------------------------------------------------------------------------------------------


def test_recommend_show_and_forget_on_a_node_alone(world: Interactions, tmp_path: Path) -> None:
    server, _ = federation(tmp_path, world, fedmf())
    server.run()
    shutil.rmtree(tmp_path / "server")
    node = Node(tmp_path / "node-1")
    user = world.user_ids[15]
    picked = node.recommend(user, 10)
    assert len(picked) == 10
    mine = {world.item_ids[i] for i in world.items[world.indptr[15] : world.indptr[16]]}
    assert not mine & {item for item, _, _ in picked}
    run = coterie.run(fedmf(), world, rounds=3, out=tmp_path / "run", threads=1)
    scores = {one.item_id: one.score for one in run.recommend(user, 50)}
    assert all(scores[item] == pytest.approx(score) for item, _, score in picked)
    with pytest.raises(CoterieError, match="not among the 13 people"):
        node.recommend("nobody")
    sent = node.store.sent()
    assert [one.round for one in sent] == [1, 2, 3]
    assert all(one.bytes_up > 0 and one.items > 0 and one.clients == 13 for one in sent)
    node.store.forget()
    assert not (tmp_path / "node-1").exists()


def test_central_systems_are_sent_away() -> None:
    with pytest.raises(CoterieError, match="trained centrally"):
        check_federated(make("ease"))


def test_the_record_is_plain_json(world: Interactions, tmp_path: Path) -> None:
    server, _ = federation(tmp_path, world, fedmf(), evaluate_every=1)
    summary = server.run()
    assert json.loads((tmp_path / "server" / "summary.json").read_text()) == json.loads(json.dumps(summary))
    assert summary["nodes"] == 3 and summary["clients"] == 40 and summary["private"] is False
