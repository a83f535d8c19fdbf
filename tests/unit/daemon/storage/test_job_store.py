"""Records, networks, artifacts and spans are read as written, in order and in pages that fit a frame."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from autosched.backend import Network, Skipped
from autosched.core.events import ClientLost
from autosched.daemon.storage.job_store import PAGE_SPANS, TABLES, Found, JobStore, Planned, span_rows
from autosched.daemon.storage.journal import Journal
from autosched.errors import Damaged
from autosched.model import Failure, Identity, IdentityFrom, Purpose, Record, TaskInfo, encode
from autosched.network_status import NOT_MEASURED, NetworkMeasurements, NetworkStatus
from autosched.protocol import FRAME_BYTES, Artifact, Span
from deadlines import DEADLINE_S

NETWORK = Network(tasks=(TaskInfo(task=1, name="conv", workload="w"),), skipped=(Skipped("reshape", "no arithmetic"),))
STATUS = NetworkStatus(measured=NetworkMeasurements(result_s=2e-3))


def with_store(path: Path, work: Callable[[Journal, JobStore], Awaitable[None]]) -> None:
    async def run() -> None:
        journal = Journal(path, *TABLES)
        list(journal.replay())
        journal.start()
        try:
            async with asyncio.timeout(DEADLINE_S):
                await work(journal, JobStore(journal))
        finally:
            journal.close()

    asyncio.run(run())


def record(trial: int, candidate: bytes = b"c", failure: Failure | None = None) -> Record:
    latency_s = () if failure else (0.003, 0.001, 0.002)
    return Record(task=1, number=trial, candidate=candidate, latency_s=latency_s, failure=failure)


async def all_records(store: JobStore, job: int) -> list[Record]:
    found: list[Record] = []
    more = True
    while more:
        page = await store.records(job, len(found))
        assert len(encode(page)) < FRAME_BYTES - 1_000
        found += page.records
        more = page.more
    return found


def test_records_come_back_as_they_were_in_their_order(tmp_path: Path) -> None:
    mine = [record(trial, failure=Failure.BUILD_ERROR if trial % 7 == 0 else None) for trial in range(100)]

    async def work(journal: Journal, store: JobStore) -> None:
        for ordinal, one in enumerate(mine):
            store.add_record(4, ordinal, one)
        store.add_record(5, 0, record(0))
        await store.flush()
        assert await all_records(store, 4) == mine
        assert await all_records(store, 5) == [record(0)]
        assert await all_records(store, 6) == []
        assert (await store.records(4, 2**64)).records == ()

    with_store(tmp_path / "db", work)


def test_pages_of_the_largest_records_fit_a_frame(tmp_path: Path) -> None:
    mine = [record(trial, bytes(199_000)) for trial in range(7)]

    async def work(journal: Journal, store: JobStore) -> None:
        for ordinal, one in enumerate(mine):
            store.add_record(1, ordinal, one)
        await store.flush()
        assert await all_records(store, 1) == mine

    with_store(tmp_path / "db", work)


def test_a_damaged_record_is_not_handed_out(tmp_path: Path) -> None:
    async def write(journal: Journal, store: JobStore) -> None:
        await store.add_record(1, 0, record(0, b"candidate"))

    async def read(journal: Journal, store: JobStore) -> None:
        with pytest.raises(Damaged, match="record 0 of job 1"):
            await store.records(1, 0)

    with_store(tmp_path / "db", write)
    database = sqlite3.connect(tmp_path / "db", isolation_level=None)
    database.execute("UPDATE records SET body = CAST(body || x'00' AS BLOB)")
    database.close()
    with_store(tmp_path / "db", read)


def test_after_a_restart_everything_is_found(tmp_path: Path) -> None:
    async def work(journal: Journal, store: JobStore) -> None:
        store.plan(2, Planned(NETWORK, 64, NOT_MEASURED))
        store.plan(3, Planned(NETWORK, 32, STATUS))
        store.set_status(2, STATUS)
        store.add_record(2, 0, record(0))
        store.add_record(2, 1, record(1, failure=Failure.RUN_CRASH))
        await store.flush()

    with_store(tmp_path / "db", work)
    journal = Journal(tmp_path / "db", *TABLES)
    store = JobStore(journal)
    assert list(store.networks()) == [(2, Planned(NETWORK, 64, STATUS)), (3, Planned(NETWORK, 32, STATUS))]
    assert list(store.networks([3])) == [(3, Planned(NETWORK, 32, STATUS))]
    assert list(store.found()) == [Found.of(2, record(0)), Found.of(2, record(1, failure=Failure.RUN_CRASH))]
    journal.close()


def test_a_later_result_file_replaces_one_of_the_same_name(tmp_path: Path) -> None:
    async def work(journal: Journal, store: JobStore) -> None:
        await store.add_artifacts(1, [Artifact("net.so", "a" * 64, 5)])
        await store.add_artifacts(1, [Artifact("net.so", "b" * 64, 6)])
        await store.add_artifacts(1, [Artifact("evaluation.json", "c" * 64, 7)])
        assert await store.artifacts(1) == (Artifact("evaluation.json", "c" * 64, 7), Artifact("net.so", "b" * 64, 6))
        assert await store.artifacts(2) == ()

    with_store(tmp_path / "db", work)


def test_the_steps_of_a_time_are_found(tmp_path: Path) -> None:
    steps = [n for n in range(1, 300) if n % 7]
    spans = [Span(n, 1, 2, "build", ("host/0",), 0.0, float(n), n + 1.0, "done") for n in steps]

    async def work(journal: Journal, store: JobStore) -> None:
        assert await store.step_before(5.0) == 0
        await journal.append(0.0, ClientLost(1, "x"), (), span_rows(spans))
        assert [await store.step_before(moment) for moment in (0.0, 2.5, 100.5, 1e9)] == [0, 2, 100, 299]

    with_store(tmp_path / "db", work)


def test_long_steps_that_ended_in_a_time_are_found_among_those_that_ended_before(tmp_path: Path) -> None:
    short = [Span(n, 1, 2, "build", ("host/0",), 0.0, float(n), n + 1.0, "done") for n in range(2, 3 * PAGE_SPANS)]
    moment = 2.5 * PAGE_SPANS
    long = Span(1, 1, 1, "profile", ("cpu0",), 0.0, 1.0, moment + 1.0, "done")

    async def work(journal: Journal, store: JobStore) -> None:
        await journal.append(0.0, ClientLost(1, "x"), (), span_rows([long, *short]))
        assert await store.spans_since(0, moment, moment) == ([long], True)
        found, more = await store.spans_since(1, moment, moment)
        assert (found, more) == ([span for span in short if span.ended_at and span.ended_at > moment], False)

    with_store(tmp_path / "db", work)


def test_spans_are_paged_by_step(tmp_path: Path) -> None:
    spans = [Span(n, 1, 2, "build", ("host/0",), 0.0, 1.0, 2.0, "done") for n in range(1, PAGE_SPANS + 11)]

    async def work(journal: Journal, store: JobStore) -> None:
        await journal.append(0.0, ClientLost(1, "x"), (), span_rows(spans))
        first, more = await store.spans(0)
        assert (first, more) == (spans[:PAGE_SPANS], True)
        assert await store.spans(PAGE_SPANS) == (spans[PAGE_SPANS:], False)
        assert await store.spans(2**70) == ([], False)
        assert (await store.spans(-5))[0] == first

    with_store(tmp_path / "db", work)


def test_tags_lie_beside_the_records_and_come_with_them(tmp_path: Path) -> None:
    final = replace(record(2), purpose=Purpose.DEFAULT)

    async def work(journal: Journal, store: JobStore) -> None:
        for ordinal, one in enumerate((record(0), record(1), final)):
            store.add_record(4, ordinal, one)
        store.add_record(5, 0, record(1))
        await store.flush()
        body = await journal.read("SELECT body FROM records WHERE job = 4 AND number = 1")
        store.tag(4, [1, 2], "other load")
        store.tag(4, [1], "drift")
        await store.flush()
        tagged = [record(0), replace(record(1), disturbed="other load"), replace(final, disturbed="other load")]
        assert await all_records(store, 4) == tagged
        assert await all_records(store, 5) == [record(1)]
        assert await journal.read("SELECT body FROM records WHERE job = 4 AND number = 1") == body

    with_store(tmp_path / "db", work)
    journal = Journal(tmp_path / "db", *TABLES)
    measured = [one.measurement for one in JobStore(journal).found() if one.job == 4]
    found = [(one.number, one.purpose, one.disturbed, one.best_s) for one in measured]
    journal.close()
    assert found == [
        (0, Purpose.TRIAL, False, 0.002),
        (1, Purpose.TRIAL, True, 0.001),
        (2, Purpose.DEFAULT, True, 0.001),
    ]


def test_identities_come_back_by_job_and_number(tmp_path: Path) -> None:
    first, second = (IdentityFrom(trial, Identity(compiler=str(trial))) for trial in (0, 7))

    async def work(journal: Journal, store: JobStore) -> None:
        store.plan(2, Planned(NETWORK, 4, NOT_MEASURED), second)
        store.plan(2, Planned(NETWORK, 4, NOT_MEASURED), first)
        store.plan(2, Planned(NETWORK, 4, NOT_MEASURED))
        store.plan(3, Planned(NETWORK, 4, NOT_MEASURED), IdentityFrom(0, Identity()))
        await store.plan(3, Planned(NETWORK, 4, NOT_MEASURED), first)
        assert list(store.identities()) == [(2, first), (2, second), (3, first)]
        assert list(store.identities([3])) == [(3, first)]

    with_store(tmp_path / "db", work)
