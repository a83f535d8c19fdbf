"""A helper: runs parts of steps for a client on another host."""

import asyncio
import hashlib
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec import Struct
from msgspec.structs import replace

from autosched.client.daemon_session import DaemonSession
from autosched.client.helper_runner import HelperRunner
from autosched.errors import RequestError
from autosched.model import JobSpec, TaskInfo
from autosched.protocol import (
    BlobState,
    Chunk,
    Done,
    GetBlob,
    GetOrder,
    JobOrder,
    Method,
    PartEnded,
    PartLease,
    PartResult,
    PutMoved,
    RevokeStep,
    RunElsewhere,
    Work,
)
from autosched_backend_mock.options import Options
from autosched_backend_mock.session import MockSession
from autosched_backend_mock.time_sources import chosen
from deadlines import DEADLINE_S
from unit.client.test_job_runner import open_to

MODEL = b"any bytes"


class Daemon:
    """Gives the helper its job, and receives its results."""

    def __init__(self, **options: Any) -> None:
        self.spec = JobSpec(
            name="net", model=hashlib.sha256(MODEL).hexdigest(), backend="mock", options={"movable": True, **options}
        )
        known = Options(movable=True)
        with tempfile.TemporaryDirectory() as folder:
            session = MockSession(self.spec, known, chosen(known, self.spec), Path(folder), Path(folder))
            self.network: Any = session._network
        self.ended: asyncio.Queue[PartEnded] = asyncio.Queue()
        self.files: dict[str, bytes] = {}

    async def call(self, method: Method, kind: type[Struct], timeout_s: float = 0.0) -> Struct:
        match method:
            case GetOrder():
                return JobOrder(1, self.spec, self.network, 0, 1, 1, 0, host="lab2")
            case GetBlob(sha256=sha256, offset=offset):
                content = self.files.get(sha256, MODEL)
                return Chunk(content[offset:], len(content))
            case PutMoved(sha256=sha256, data=data, total=total):
                self.files[sha256] = data
                return BlobState(len(data), len(data) == total)
            case PartEnded():
                self.ended.put_nowait(method)
                return Done()
        raise AssertionError(method)

    def part(self, work: Work = Work.BUILD, **other: Any) -> RunElsewhere:
        unit = "host/0@lab2" if work is Work.BUILD else "cpu0@lab2"
        stage = "build" if work is Work.BUILD else "profile"
        order = RunElsewhere(
            step=7, part=0, work=work, task=self.network.tasks[0], lease=PartLease(stage, (unit,), (), 30.0)
        )
        return replace(order, **other)


def story(folder: Path, daemon: Daemon, tell: Callable[[HelperRunner], Awaitable[None]]) -> None:
    async def told() -> None:
        line: DaemonSession = open_to(daemon)
        helper = HelperRunner(folder, line)
        async with asyncio.timeout(DEADLINE_S):
            await helper.begin()
            await tell(helper)
        helper.kill()

    asyncio.run(told())


def test_a_helper_builds_and_then_measures_its_builds(tmp_path: Path) -> None:
    daemon = Daemon()

    async def tell(helper: HelperRunner) -> None:
        await helper.handle(daemon.part(candidates=(b"[1,5]", b"[1,6]")))
        built = (await daemon.ended.get()).ended
        assert [one.candidate for one in built.builds] == [b"[1,5]", b"[1,6]"]
        assert {daemon.files[cast(str, one.file)] for one in built.builds} == {b"[1,5]", b"[1,6]"}
        await helper.handle(daemon.part(Work.PROFILE, part=1, builds=built.builds))
        ended = await daemon.ended.get()
        assert (ended.step, ended.part) == (7, 1)
        assert [(one.candidate, one.failure) for one in ended.ended.measured] == [(b"[1,5]", None), (b"[1,6]", None)]

    story(tmp_path, daemon, tell)


def test_a_part_that_is_requested_twice_runs_once(tmp_path: Path) -> None:
    daemon = Daemon(build_s=0.05)

    async def tell(helper: HelperRunner) -> None:
        for _ in range(3):
            await helper.handle(daemon.part(candidates=(b"[1,5]",)))
        await daemon.ended.get()
        await helper.handle(daemon.part(part=1, candidates=(b"[1,6]",)))
        assert (await daemon.ended.get()).part == 1
        assert daemon.ended.empty()

    story(tmp_path, daemon, tell)


@pytest.mark.parametrize("revoked", [True, False])
def test_a_stage_that_hangs_is_killed_when_it_is_revoked_or_its_time_is_over(tmp_path: Path, revoked: bool) -> None:
    daemon = Daemon(hang_ratio=1.0)

    async def tell(helper: HelperRunner) -> None:
        lease = PartLease("build", ("host/0@lab2",), (), 60.0 if revoked else 0.05)
        await helper.handle(daemon.part(candidates=(b"[1,5]",), lease=lease))
        if revoked:
            while not cast(MockSession, helper._session)._sleeping:  # noqa: ASYNC110 - it tells nothing of this
                await asyncio.sleep(0)
            await helper.handle(RevokeStep(step=7, reason="its client wants it"))
        ended: PartResult = (await daemon.ended.get()).ended
        assert "was killed" in ended.error
        assert not ended.builds

    story(tmp_path, daemon, tell)


def test_a_part_revoked_before_the_import_never_begins(tmp_path: Path) -> None:
    daemon = Daemon(hang_ratio=1.0)

    async def told() -> None:
        helper = HelperRunner(tmp_path, open_to(daemon))
        await helper.handle(daemon.part(candidates=(b"[1,5]",)))
        await helper.handle(RevokeStep(step=7, reason="its client wants it"))
        async with asyncio.timeout(DEADLINE_S):
            await helper.begin()
            assert "revoked before it began" in (await daemon.ended.get()).ended.error

    asyncio.run(told())


def test_a_task_that_is_another_one_here_is_refused(tmp_path: Path) -> None:
    daemon = Daemon()

    async def tell(helper: HelperRunner) -> None:
        other = replace(daemon.network.tasks[0], workload="another one")
        await helper.handle(daemon.part(task=other, candidates=(b"[1,5]",)))
        assert "Give both the same versions" in (await daemon.ended.get()).ended.error
        await helper.handle(daemon.part(part=1, task=TaskInfo(task=99, name="x", workload="y"), candidates=(b"[1]",)))
        assert "task 99 is another one here" in (await daemon.ended.get()).ended.error

    story(tmp_path, daemon, tell)


def test_a_helper_waits_for_the_import_of_its_client(tmp_path: Path) -> None:
    daemon = Daemon()
    daemon.network = None
    with pytest.raises(RequestError, match="the client of job 1 has not imported its model"):
        story(tmp_path, daemon, cast(Any, None))


def test_a_backend_without_the_method_is_refused(tmp_path: Path) -> None:
    daemon = Daemon(movable=False)
    with pytest.raises(RequestError, match="runs no stages on other hosts"):
        story(tmp_path, daemon, cast(Any, None))
