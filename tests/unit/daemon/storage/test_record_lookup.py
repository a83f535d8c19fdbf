"""Answers of the record store to a job: valid latencies, hints, and no failed schedule."""

import asyncio
import contextlib
import threading
from collections.abc import Collection, Iterable
from pathlib import Path

import msgspec
import pytest

from autosched.daemon.storage import record_lookup, store_reader
from autosched.daemon.storage.record_lookup import Asking, RecordLookup
from autosched.model import Identity, Program, Purpose, TaskInfo
from autosched.protocol import CHUNK_BYTES, AddProgram, GetKnown, GetRanker, KnownSchedules, RankerPart
from autosched.recordstore import opening
from autosched.recordstore.keys import environment
from autosched.recordstore.queries import Lookup
from autosched.recordstore.rows import Measurement, Origin, StoredRanker
from autosched.recordstore.store import RecordStore
from samples_of_store import CONV, JOB, LAB, measured

IDENTITY = Identity('{"kind": "llvm", "mcpu": "znver4"}', "AMD EPYC", "tvm 0.27", "autotvm 1")
ASKED = GetKnown(workload=CONV.hash, identity=IDENTITY, count=4)
LATER = msgspec.structs.replace(IDENTITY, compiler="tvm 0.28")
ELSEWHERE = msgspec.structs.replace(IDENTITY, device="Xeon")
FINAL = Purpose.FINAL
ME = 99
"""The job that asks."""
OPERATORS = ("uid 0",)


def told(
    folder: Path,
    rows: Iterable[Measurement],
    origin: Origin = LAB,
    asked: GetKnown = ASKED,
    job: int = ME,
    owner: str = "ada",
) -> KnownSchedules:
    """Returns the answer of a store with these rows of one origin."""
    path = folder / "records.db"
    with contextlib.closing(RecordStore(opening.file_url(path))) as store:
        store.add(origin, list(rows))

    async def caught_up(timeout_s: float) -> None:
        assert timeout_s > 0

    async def ask() -> KnownSchedules:
        lookup = RecordLookup(path, LAB.name, caught_up, OPERATORS.__contains__)
        try:
            return await lookup.known(asked, Asking(job, owner, "autotvm"))
        finally:
            lookup.close()

    return asyncio.run(ask())


def names(schedules: Iterable[object]) -> list[str]:
    return [one.candidate.decode() for one in schedules]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("by", "origin", "asks", "holds"),
    [
        ("ada", LAB, "ada", True), ("eve", LAB, "ada", False), ("uid 0", LAB, "ada", True), ("", LAB, "ada", True),
        ("ada", Origin("other lab"), "ada", True), ("uid 0", Origin("other lab"), "ada", False),
        ("", Origin("other lab"), "ada", False),
    ],
)  # fmt: skip
def test_what_another_user_reports_is_a_hint(by: str, origin: Origin, asks: str, holds: bool, tmp_path: Path) -> None:
    job = msgspec.structs.replace(JOB, owner=by)
    found = told(tmp_path, [measured(1, 1e-3, job=job, origin=origin)], origin, owner=asks)
    assert (names(found.own), names(found.hints)) == ((["schedule 1"], []) if holds else ([], ["schedule 1"]))


@pytest.mark.parametrize(
    ("by", "origin", "removes"),
    [
        ("ada", LAB, True), ("eve", LAB, False), ("uid 0", LAB, True), ("", LAB, True),
        ("ada", Origin("other lab"), True), ("uid 0", Origin("other lab"), False),
    ],
)  # fmt: skip
def test_a_failure_that_another_user_reports_removes_no_hint(
    by: str, origin: Origin, removes: bool, tmp_path: Path
) -> None:
    failed = measured(1, None, job=msgspec.structs.replace(JOB, number=8, owner=by), origin=origin)
    with contextlib.closing(RecordStore(opening.file_url(tmp_path / "records.db"))) as store:
        store.add(LAB, [measured(1, 1e-3, where=environment(ELSEWHERE, "autotvm"))])
    found = told(tmp_path, [failed], origin)
    assert names(found.hints) == ([] if removes else ["schedule 1"])


def test_latencies_of_the_same_circumstances_hold_the_fastest_first(tmp_path: Path) -> None:
    found = told(tmp_path, [measured(1, 3e-3), measured(2, 1e-3, purpose=FINAL), measured(3, None)])
    assert names(found.own) == ["schedule 2", "schedule 1"]
    assert [one.compared for one in found.own] == [True, False]
    assert (found.tried, found.hints, found.trouble) == (3, (), "")
    first = found.own[0]
    assert first.latency_s == (1e-3, 1.1e-3, 1.2e-3)
    assert first.source == "job 7 (squeezenet.onnx)"
    assert (first.code, first.measured_at) == (f"{2:032x}", 1.7e9 + 2)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (measured(1, 1e-9, where=environment(ELSEWHERE, "autotvm")), "another model of device"),
        (measured(1, 1e-9, where=environment(LATER, "autotvm")), "another compiler"),
        (measured(1, 1e-9, disturbed="load"), "it was disturbed"),
        (measured(1, 1e-9, job=msgspec.structs.replace(JOB, number=ME)), "the job's own"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_any_other_latency_is_a_hint(row: Measurement, why: str, tmp_path: Path) -> None:
    found = told(tmp_path, [row, measured(2, 5e-3)])
    assert names(found.own) == ["schedule 2"], why
    assert names(found.hints) == ["schedule 1"]


def test_an_imported_record_that_claims_a_nanosecond_is_no_more_than_a_hint(tmp_path: Path) -> None:
    poison = Origin("file", imported=True, detail="lab.jsonl")
    found = told(tmp_path, [measured(1, 1e-9, purpose=FINAL, origin=poison)], poison)
    assert found.own == ()
    assert [one.source for one in found.hints] == ["imported from lab.jsonl"]


def test_a_schedule_that_was_wrong_in_a_network_is_never_told(tmp_path: Path) -> None:
    found = told(
        tmp_path, [measured(1, 1e-3, candidate="a"), measured(2, None, candidate="a", purpose=Purpose.NETWORK)]
    )
    assert (found.own, found.hints) == ((), ())


def test_a_schedule_that_failed_here_is_never_told_again(tmp_path: Path) -> None:
    """Its trace may not replay any more: one job finds out, and no other one tries."""
    there = environment(LATER, "autotvm")
    rows = [measured(1, 1e-3, candidate="a", where=there), measured(2, 2e-3, candidate="b", where=there)]
    assert names(told(tmp_path, rows).hints) == ["a", "b"]
    assert names(told(tmp_path, [measured(3, None, candidate="a")]).hints) == ["b"]


def test_a_colleague_s_daemon_is_named(tmp_path: Path) -> None:
    found = told(tmp_path, [measured(1, 1e-3, origin=Origin("other", detail="lab2"))], Origin("other", detail="lab2"))
    assert [one.source for one in found.own] == ["job 7 of lab2 (squeezenet.onnx)"]


def test_hints_of_two_devices_are_ranked_by_each_device_s_own_best(tmp_path: Path) -> None:
    slow, fast = (environment(msgspec.structs.replace(IDENTITY, device=name), "autotvm") for name in ("slow", "fast"))
    rows = [
        measured(1, 1e-3, where=slow), measured(2, 5e-3, where=slow), measured(3, 1e-4, where=fast),
        measured(4, 2e-4, where=fast),
    ]  # fmt: skip
    assert names(told(tmp_path, rows).hints) == ["schedule 3", "schedule 1", "schedule 4", "schedule 2"]


def test_no_more_is_told_than_was_asked_for_and_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [measured(n, 1e-3 * n) for n in range(1, 9)]
    assert len(told(tmp_path, rows).own) == 4
    monkeypatch.setattr(record_lookup, "ANSWER_BYTES", 50)
    assert names(told(tmp_path, rows).own) == ["schedule 1", "schedule 2"]


def test_a_store_that_fails_costs_its_jobs_nothing_and_is_left_alone_for_a_while(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    path.write_bytes(b"no database" * 1_000)

    async def caught_up(timeout_s: float) -> None:
        return

    async def ask() -> list[KnownSchedules]:
        lookup = RecordLookup(path, LAB.name, caught_up, OPERATORS.__contains__)
        found = [await lookup.known(ASKED, Asking(ME, "ada", "autotvm"))]
        path.unlink()
        found.append(await lookup.known(ASKED, Asking(ME, "ada", "autotvm")))
        lookup.close()
        return found

    for answer in asyncio.run(ask()):
        assert (answer.own, answer.hints) == ((), ())
        assert "cannot be used" in answer.trouble


def test_a_store_that_stands_still_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_reader, "DEADLINE_S", 0.05)
    goes_on = threading.Event()

    def best(*_: object) -> list[object]:
        goes_on.wait(60.0)
        return []

    monkeypatch.setattr(Lookup, "best", best)

    async def caught_up(timeout_s: float) -> None:
        return

    async def ask() -> KnownSchedules:
        lookup = RecordLookup(tmp_path / "records.db", LAB.name, caught_up, OPERATORS.__contains__)
        try:
            return await lookup.known(ASKED, Asking(ME, "ada", "autotvm"))
        finally:
            goes_on.set()
            lookup.close()

    assert "does not answer" in asyncio.run(ask()).trouble


def test_programs_are_asked_for_until_they_are_known(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    task = TaskInfo(task=1, name=CONV.name, workload=CONV.hash, shape=CONV.shape, flops=CONV.flops)
    program = Program("tvm 0.27", b"\x00packed")

    async def caught_up(timeout_s: float) -> None:
        """No row is pending."""

    async def ask() -> tuple[set[str], set[str]]:
        lookup = RecordLookup(path, LAB.name, caught_up, OPERATORS.__contains__)
        try:
            before = await lookup.unknown_programs((CONV.hash, "other"))
            await lookup.add_program(AddProgram(task=task, program=program))
            await lookup.add_program(AddProgram(task=task, program=program))
            return set(before), set(await lookup.unknown_programs((CONV.hash, "other")))
        finally:
            lookup.close()

    assert asyncio.run(ask()) == ({CONV.hash, "other"}, {"other"})
    with contextlib.closing(Lookup(opening.file_url(path))) as lookup:
        assert lookup.programs({CONV.hash}) == {CONV.hash: program}


def test_a_ranker_is_given_in_parts(tmp_path: Path) -> None:
    path, content = tmp_path / "records.db", bytes(range(256)) * (CHUNK_BYTES // 256) + b"rest"
    with contextlib.closing(RecordStore(opening.file_url(path))) as store:
        for family, device in (("conv2d", "AMD EPYC"), ("dense", "AMD EPYC"), ("conv2d", "Xeon")):
            store.put_ranker(
                StoredRanker(family, device, "1", 9, 1.0, {}, content if device == "AMD EPYC" else b"other")
            )

    async def caught_up(timeout_s: float) -> None:
        """No row is pending."""

    async def ask() -> tuple[tuple[str, ...], list[RankerPart]]:
        lookup = RecordLookup(path, LAB.name, caught_up, OPERATORS.__contains__)
        try:
            asked = [GetRanker("AMD EPYC", "conv2d"), GetRanker("AMD EPYC", "conv2d", CHUNK_BYTES), GetRanker("", "")]
            return (await lookup.rankers("AMD EPYC")).families, [await lookup.ranker(one) for one in asked]
        finally:
            lookup.close()

    families, parts = asyncio.run(ask())
    assert families == ("conv2d", "dense")
    assert b"".join(part.content for part in parts[:2]) == content
    assert [part.total for part in parts] == [len(content), len(content), 0]


def test_a_store_that_is_away_wants_no_programs(tmp_path: Path) -> None:
    async def caught_up(timeout_s: float) -> None:
        """No row is pending."""

    async def ask() -> Collection[str]:
        lookup = RecordLookup(tmp_path / "missing" / "records.db", LAB.name, caught_up, OPERATORS.__contains__)
        try:
            return await lookup.unknown_programs((CONV.hash,))
        finally:
            lookup.close()

    assert not asyncio.run(ask())
