"""What a client takes up from its daemon, that it is heard from, and how it says that the network cannot be made."""

import asyncio
import hashlib
import time
from pathlib import Path
from typing import cast

import pytest
from msgspec import Struct

from autosched.backend import Lease
from autosched.client import host
from autosched.client.host import Host
from autosched.errors import ModelRejected, StepFailed
from autosched.link import Link
from autosched.model import NETWORK_TASK, JobSpec, Record
from autosched.protocol import AskLoad, Chunk, GetBlob, GetOrder, GetRecords, Heartbeat, JobOrder, Method, RecordPage

BUSY_S = 0.5


class Line:
    """Remembers what was told."""

    def __init__(self) -> None:
        self.told: list[Method] = []

    def notify(self, method: Method) -> None:
        self.told.append(method)


def test_a_busy_step_does_not_silence_the_heartbeat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "HEARTBEAT_S", 0.01)

    def busy() -> None:
        """As bad as a step can be: it never waits, and holds the interpreter as long as that allows."""
        until = time.monotonic() + BUSY_S
        while time.monotonic() < until:
            pass

    async def work() -> None:
        hosting, line = host.Host(tmp_path), Line()
        hosting._link = cast(Link, line)
        beat = asyncio.ensure_future(hosting.beat())
        await hosting._in_thread(Lease("build", ("host/0",), (), 10.0), busy)
        beat.cancel()
        assert line.told.count(Heartbeat()) >= 3

    asyncio.run(work())


OWN, OTHER = 2, 1
MODEL = b"any bytes"


class FakeDaemon:
    """Has an order and records for the client; the numbers of the job's own have a gap."""

    def __init__(self, trials: dict[int, list[int]]) -> None:
        self._trials = trials

    async def call(self, method: Method, kind: type[Struct]) -> Struct:
        if isinstance(method, GetOrder):
            spec = JobSpec(name="net", model=hashlib.sha256(MODEL).hexdigest(), backend="mock", records_from=OTHER)
            return JobOrder(
                job=OWN, spec=spec, network=None, records=0, lanes=1, devices=1, device_cores=1
            )  # fmt: skip
        assert isinstance(method, GetRecords)
        found = (Record(task=1, trial=trial, candidate=b"") for trial in self._trials[method.job])
        return RecordPage(tuple(found), False)


async def begun(folder: Path, trials: dict[int, list[int]]) -> Host:
    (folder / "model").mkdir()
    (folder / "model/net.onnx").write_bytes(MODEL)
    begun = Host(folder)
    await begun.begin(cast(Link, FakeDaemon(trials)))
    return begun


def test_numbers_go_on_after_the_last_of_the_job_itself(tmp_path: Path) -> None:
    made = asyncio.run(begun(tmp_path, {OTHER: [0, 1, 2], OWN: [0, 1, 5]}))
    assert made._worker is not None
    assert (made._worker.trials, made._borrowed, len(made._records)) == (6, 3, 6)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (StepFailed("the disk is full"), "compile failed: the disk is full"),
        (ModelRejected("cut the model"), "cut the model"),
        (KeyError("x"), "compile failed: KeyError: 'x'"),
    ],
)
def test_a_network_that_cannot_be_made_is_explained(error: Exception, message: str, tmp_path: Path) -> None:
    async def said() -> str:
        made = await begun(tmp_path, {OTHER: [], OWN: []})
        await made.handle(AskLoad())
        failure = made._after_failure(made._course.result(), NETWORK_TASK, "compile", error).failure
        assert failure is not None
        return failure.message

    assert asyncio.run(said()) == message


@pytest.mark.parametrize(
    ("file", "name"),
    [("", "net.onnx"), ("a b.c", "a_b.c"), ("../../etc/passwd", "_.._etc_passwd"), ("...", "model"), ("out", "out")],
)
def test_a_model_lies_under_its_users_name_and_nowhere_else(file: str, name: str, tmp_path: Path) -> None:
    class Uploads:
        async def call(self, method: Method, kind: type[Struct]) -> Struct:
            assert isinstance(method, GetBlob)
            return Chunk(MODEL[method.offset :], len(MODEL))

    async def fetched() -> Path:
        made = Host(tmp_path)
        made._link = cast(Link, Uploads())
        return await made._fetch_model(JobSpec(name="net", model=hashlib.sha256(MODEL).hexdigest(), file=file))

    path = asyncio.run(fetched())
    assert path == tmp_path / "model" / name
    assert path.read_bytes() == MODEL
