"""The record store copies the daemon's database completely and once, across faults."""

import asyncio
import contextlib
import shutil
import signal
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

import postgres
from autosched.backend import Network
from autosched.core.events import ClientLost
from autosched.daemon.storage import database, pruning, record_projection, schema
from autosched.daemon.storage.job_store import JobStore, Planned
from autosched.daemon.storage.journal import Journal
from autosched.daemon.storage.projection_status import ProjectionStatus
from autosched.daemon.storage.record_projection import RECORDS, RecordProjection
from autosched.errors import ConfigError
from autosched.model import Failure, Identity, IdentityFrom, JobId, Purpose, Record, TaskInfo
from autosched.network_status import NOT_MEASURED
from autosched.recordstore import opening
from autosched.recordstore.keys import environment
from autosched.recordstore.queries import Lookup
from autosched.recordstore.rows import Schedule, SourceJob, Standing
from autosched.recordstore.store import RecordStore
from deadlines import DEADLINE_S

pytestmark = pytest.mark.slow

NETWORK = Network(
    tasks=(
        TaskInfo(task=1, name="conv", workload="w1", shape="conv2d 8x8 -> 8x8", flops=1e6, template="conv 1"),
        TaskInfo(task=2, name="dense", workload="w2", shape="dense 8x8"),
    )
)
IDENTITY = Identity('{"kind": "llvm", "mcpu": "znver4", "num-cores": 2}', "AMD EPYC", "tvm 0.27", "autotvm 1", "tvm 1")


def facts(job: JobId) -> tuple[SourceJob, str]:
    return SourceJob(job, f"job {job}", "net.onnx", "ab", "ada"), "autotvm"


def record(trial: int, task: int = 1, purpose: Purpose = Purpose.TRIAL, candidate: str = "") -> Record:
    failed = trial % 7 == 6
    return Record(
        task=task,
        number=trial,
        candidate=(candidate or f"{task}/{trial}").encode(),
        latency_s=() if failed else (1e-3 * (trial + 1), 1.1e-3 * (trial + 1)),
        failure=Failure.RUN_ERROR if failed else None,
        purpose=purpose,
        measured_at=1e9 + trial,
    )


class Lab:
    """A daemon's database, and a projection of it."""

    def __init__(self, folder: Path, url: str | Path | None = None) -> None:
        self.folder, self.status = folder, ProjectionStatus()
        self.url = folder / RECORDS if url is None else url
        self.journal = Journal(database.database(folder), *database.TABLES)
        list(self.journal.replay())
        self.journal.start()
        self.store = JobStore(self.journal)
        self.projection = RecordProjection(database.database(folder), self.url, facts, self.status)
        self._running = asyncio.ensure_future(self.projection.run())

    async def close(self) -> None:
        self._running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._running
        self.projection._thread.shutdown(wait=True)  # else the database's log would stay, and count for a later one
        self.journal.close()

    async def add(
        self, job: JobId, records: list[Record], first: int = 0, identity: Identity | None = IDENTITY
    ) -> None:
        changed = IdentityFrom(first, identity) if identity is not None else None
        await self.store.plan(job, Planned(NETWORK, 100, NOT_MEASURED), changed)
        for ordinal, one in enumerate(records, first):
            self.store.add_record(job, ordinal, one)
        await self.store.flush()
        self.projection.take()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not holds():  # noqa: ASYNC110  (what it looks at is on disk)
                await asyncio.sleep(0.02)

    async def caught_up(self, measurements: int) -> None:
        """Waits until the store has a number of measurements."""
        await self.until(lambda: stored(self.url) == measurements)
        assert stored(self.url) == measurements


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_projection, "GATHER_S", 0.0)
    monkeypatch.setattr(record_projection, "RETRY_S", 0.01)
    monkeypatch.setattr(record_projection, "RETRY_MAX_S", 0.05)


@contextlib.asynccontextmanager
async def lab(folder: Path, url: str | Path | None = None) -> AsyncIterator[Lab]:
    made = Lab(folder, url)
    try:
        yield made
    finally:
        await made.close()


def lookup(url: str | Path) -> contextlib.closing[Lookup]:
    return contextlib.closing(Lookup(opening.file_url(url) if isinstance(url, Path) else url))


def everything(url: str | Path) -> dict[bytes, Schedule]:
    with lookup(url) as store:
        return {one.candidate: one for workload in ("w1", "w2") for one in store.all(workload, limit=100_000)}


def remove_store(folder: Path) -> None:
    for path in folder.glob(f"{RECORDS}*"):
        path.unlink()


def stored(url: str | Path) -> int:
    """Returns the number of measurements in a store that works."""
    with contextlib.closing(RecordStore(opening.file_url(url) if isinstance(url, Path) else url)) as store:
        return store.count()


def test_records_reach_the_store_with_all_that_is_known_of_them(tmp_path: Path) -> None:
    async def work() -> None:
        async with lab(tmp_path) as here:
            await here.add(4, [record(0), record(1, task=2), record(6)])
            await here.caught_up(3)

    asyncio.run(work())
    found = everything(tmp_path / RECORDS)
    assert set(found) == {b"1/0", b"2/1", b"1/6"}
    first = found[b"1/0"]
    assert first.environment == environment(IDENTITY, "autotvm", "conv 1")
    assert first.environment.threads == 2
    assert (first.job, first.origin.imported) == (facts(4)[0], False)
    assert first.best_s == pytest.approx(1.05e-3)
    assert first.measured_at == 1e9
    assert found[b"2/1"].environment.template == ""
    assert (found[b"1/6"].failure, found[b"1/6"].best_s) == ("run error", None)


def test_restarts_and_repetitions_store_each_record_once(tmp_path: Path) -> None:
    async def work() -> None:
        for life in range(4):
            async with lab(tmp_path) as here:
                await here.add(1, [record(life * 10 + n) for n in range(10)], life * 10)
                if life % 2:  # the others stop in between
                    await here.caught_up(10 * life + 10)

    asyncio.run(work())
    assert stored(tmp_path / RECORDS) == 40
    assert len(everything(tmp_path / RECORDS)) == 40


def test_first_caller_does_not_wait_for_news(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_projection, "LOOK_S", 3_600.0)

    async def work() -> None:
        async with lab(tmp_path) as here:
            await here.add(1, [record(n) for n in range(10)])
        async with lab(tmp_path) as here:
            await here.projection.caught_up(DEADLINE_S)
            assert stored(here.url) == 10

    asyncio.run(work())


def test_many_records_go_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_projection, "BATCH", 7)

    async def work() -> None:
        async with lab(tmp_path) as here:
            await here.add(1, [record(n) for n in range(100)])
            await here.caught_up(100)

    asyncio.run(work())
    assert stored(tmp_path / RECORDS) == 100


def test_store_that_was_lost_is_filled_again(tmp_path: Path) -> None:
    async def work() -> None:
        async with lab(tmp_path) as here:
            await here.add(1, [record(n) for n in range(30)])
            await here.caught_up(30)
        remove_store(tmp_path)
        async with lab(tmp_path) as here:
            await here.add(1, [record(30)], 30)
            await here.caught_up(31)

    asyncio.run(work())
    assert stored(tmp_path / RECORDS) == 31


def test_database_that_was_put_back_from_a_backup_doubles_and_loses_nothing(tmp_path: Path) -> None:
    copy = tmp_path / "copy"

    async def work() -> None:
        async with lab(tmp_path) as here:
            await here.add(1, [record(n) for n in range(10)])
            await here.caught_up(10)
        shutil.copy(database.database(tmp_path), copy)
        async with lab(tmp_path) as here:  # these ten are known to the store only, later
            await here.add(1, [record(n) for n in range(10, 20)], 10)
            await here.caught_up(20)
        shutil.copy(copy, database.database(tmp_path))
        database.database(tmp_path).with_name("autosched.db.ack").unlink()
        async with lab(tmp_path) as here:
            await here.add(1, [record(n, candidate=f"another {n}") for n in range(10, 25)], 10)
            await here.caught_up(35)

    asyncio.run(work())
    assert stored(tmp_path / RECORDS) == 35


def test_tag_that_comes_later_reaches_the_store(tmp_path: Path) -> None:
    def standings() -> dict[bytes, Standing]:
        return {name: one.standing for name, one in everything(tmp_path / RECORDS).items()}

    expected = {b"1/0": Standing.BOUND, b"1/1": Standing.SEARCHED}

    async def work() -> None:
        async with lab(tmp_path) as here:
            await here.add(1, [record(0), record(1)])
            await here.caught_up(2)
            await here.store.tag(1, [0], "load")
            here.projection.take()
            await here.until(lambda: standings() == expected)
        async with lab(tmp_path) as here:
            await here.add(1, [record(2)], 2)
            await here.store.tag(1, [2], "load")  # perhaps before the record is copied
            here.projection.take()
            await here.until(lambda: standings() == {**expected, b"1/2": Standing.BOUND})

    asyncio.run(work())
    assert everything(tmp_path / RECORDS)[b"1/0"].best_s == pytest.approx(1e-3)


def test_pruned_job_leaves_its_records_in_the_store(tmp_path: Path) -> None:
    async def work() -> None:
        async with lab(tmp_path) as here:
            await here.add(1, [record(n) for n in range(5)])
            await here.store.tag(1, [3], "load")
            await here.caught_up(5)
            await here.journal.append(1.0, ClientLost(1, "it died"))
            await here.add(2, [record(5)])
            await here.caught_up(6)
            await here.journal.write(*pruning.statements(1, pruning.Trace([1], []), records=True))
            before = here.status.stored
            await here.add(2, [record(8)], 1)
            await here.caught_up(7)
            await here.until(lambda: here.status.stored == before + 1)  # nothing was copied twice

    asyncio.run(work())


def test_records_of_unknown_identity_or_workload(tmp_path: Path) -> None:
    async def work() -> None:
        async with lab(tmp_path) as here:
            await here.add(1, [record(0), record(1, task=99)], identity=None)
            await here.caught_up(1)

    asyncio.run(work())
    (found,) = everything(tmp_path / RECORDS).values()
    assert found.environment.backend == "autotvm"
    assert found.environment.target == ""


def test_one_record_that_the_store_refuses_costs_that_record_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = RecordStore._add

    def refuse(self: RecordStore, connection: object, origin: object, measurements: list[object]) -> None:
        if any(one.record.number == 33 for one in measurements):  # type: ignore[attr-defined]
            raise OverflowError("trial 33")
        add(self, connection, origin, measurements)  # type: ignore[arg-type]

    monkeypatch.setattr(RecordStore, "_add", refuse)

    async def work() -> None:
        async with lab(tmp_path) as here:
            await here.add(1, [record(n) for n in range(60)])
            await here.caught_up(59)

    asyncio.run(work())
    assert stored(tmp_path / RECORDS) == 59


@pytest.mark.parametrize("url", ["mysql://host/db", "postgresql://host"])
def test_url_of_no_store_stops_the_start(tmp_path: Path, url: str) -> None:
    with pytest.raises(ConfigError):
        RecordProjection(tmp_path / "db", url, facts, ProjectionStatus())


def test_store_that_cannot_be_used_is_told_and_catches_up(tmp_path: Path) -> None:
    folder = tmp_path / "away"

    async def work() -> None:
        async with lab(tmp_path, folder / "records.db") as here:
            await here.add(1, [record(n) for n in range(20)])
            await here.until(lambda: bool(here.status.trouble))
            assert "unable to open database file" in here.status.trouble
            folder.mkdir()
            await here.caught_up(20)

    asyncio.run(work())
    assert stored(folder / "records.db") == 20


def test_name_of_a_database_is_kept_by_its_copies(tmp_path: Path) -> None:
    def origin(path: Path) -> object:
        with contextlib.closing(sqlite3.connect(path)) as db:
            return db.execute("SELECT count FROM header WHERE name = ?", (schema.ORIGIN,)).fetchone()

    async def fill(folder: Path) -> None:
        async with lab(folder) as here:
            for second in range(10):
                await here.journal.append(second + 0.25, ClientLost(1, "it died"))

    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    asyncio.run(fill(one))
    asyncio.run(fill(two))
    first, second = database.database(one), database.database(two)
    assert origin(first) != origin(second)
    database.copy(first, tmp_path / "copy.db")
    assert origin(tmp_path / "copy.db") == origin(first)


# PostgreSQL -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def own_server() -> Iterator[postgres.Server]:
    """A server to be killed."""
    with postgres.server() as running:
        yield running


def test_server_that_is_killed_loses_and_doubles_nothing(tmp_path: Path, own_server: postgres.Server) -> None:
    url = own_server.database()

    async def work() -> None:
        async with lab(tmp_path, url) as here:
            for life in range(3):
                await here.add(1, [record(life * 50 + n) for n in range(50)], life * 50)
                await here.until(lambda: here.status.stored > 0)
                here.status.stored = 0
                await asyncio.to_thread(own_server.kill)
                await here.add(2 + life, [record(n) for n in range(10)])
                await here.until(lambda: bool(here.status.trouble))
                assert here.status.behind >= 10
                await asyncio.to_thread(own_server.start)
                await here.until(lambda: not here.status.trouble and not here.status.behind)
            await here.caught_up(180)

    asyncio.run(work())
    assert stored(url) == 180


def test_server_that_stands_still_delays_nothing_but_itself(
    tmp_path: Path, own_server: postgres.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_projection, "DEADLINE_S", 0.2)
    monkeypatch.setattr(opening, "CONNECT_S", 1)
    url = own_server.database()

    async def work() -> None:
        async with lab(tmp_path, url) as here:
            await here.add(1, [record(0)])
            await here.caught_up(1)
            own_server.signal(signal.SIGSTOP)
            await here.add(1, [record(1)], 1)  # is durable without it
            await here.until(lambda: bool(here.status.trouble))
            own_server.signal(signal.SIGCONT)
            await here.caught_up(2)

    asyncio.run(work())
    assert stored(url) == 2


def test_server_that_fails_over_to_an_empty_one_is_filled_again(
    tmp_path: Path, own_server: postgres.Server, postgresql: postgres.Server
) -> None:
    url = own_server.database()

    async def work() -> None:
        async with lab(tmp_path, url) as here:
            await here.add(1, [record(n) for n in range(20)])
            await here.caught_up(20)
            await asyncio.to_thread(own_server.drop, url)
            await here.add(1, [record(20)], 20)
            await here.caught_up(21)

    asyncio.run(work())
    assert stored(url) == 21


def test_two_daemons_share_one_database(tmp_path: Path, postgresql: postgres.Server) -> None:
    url = postgresql.database()
    for name in ("a", "b"):
        (tmp_path / name).mkdir()

    async def work() -> None:
        async with lab(tmp_path / "a", url) as one, lab(tmp_path / "b", url) as two:
            for n in range(5):
                await asyncio.gather(
                    one.add(1, [record(n * 20 + m) for m in range(20)], n * 20),
                    two.add(1, [record(n * 20 + m, candidate=f"b{m}") for m in range(20)], n * 20),
                )
            await one.caught_up(200)

    asyncio.run(work())
    assert stored(url) == 200
    assert len({one.origin.name for one in everything(url).values()}) == 2


def test_copy_of_a_state_folder_does_not_double_what_both_know(tmp_path: Path, postgresql: postgres.Server) -> None:
    url = postgresql.database()
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir()

    async def work() -> None:
        async with lab(first, url) as one:
            await one.add(1, [record(n) for n in range(30)])
            await one.caught_up(30)
        shutil.copytree(first, second)
        async with lab(first, url) as one, lab(second, url) as two:
            await one.add(2, [record(n) for n in range(10)])
            await two.add(2, [record(n, candidate=f"b{n}") for n in range(10)])
            await one.caught_up(50)

    asyncio.run(work())
