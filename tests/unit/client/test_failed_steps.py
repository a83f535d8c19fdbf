"""After a failed step its stage is repeated, or its task or job gives up, in words."""

import asyncio
import errno
from typing import Any, cast

import pytest

from autosched.backend import Lease
from autosched.client import failed_steps
from autosched.client.daemon_session import DaemonSession
from autosched.client.failed_steps import DEVICE_LOSSES_MAX, FailedSteps, give_up, not_opened
from autosched.client.plan.job_plan import JobPlan
from autosched.client.stage_runner import StageRunner
from autosched.errors import DeviceLost, ModelRejected, StepFailed
from autosched.model import NETWORK_TASK, JobSpec, Step
from autosched.protocol import BoardAccess

STEP = Step(id=5, job=1, task=NETWORK_TASK, stage="import", units=("cpu0",), started_at=0.0, deadline_at=20.0)


class Line:
    """A daemon that knows the board of a step."""

    returns = 0

    async def ask(self, *_: object) -> BoardAccess:
        return BoardAccess("127.0.0.1", 1, "key", "it ended the session")


class Runner:
    """Notes what is blamed."""

    def __init__(self) -> None:
        self.blamed: list[bytes] = []

    def blame(self, task: int, current: object, candidate: bytes, *_: object) -> None:
        self.blamed.append(candidate)


def importing() -> JobPlan:
    plan = JobPlan(JobSpec(name="net", model="0" * 64), lanes=1, devices=1)
    plan.started(NETWORK_TASK, "import")
    return plan


async def lose(
    failed: FailedSteps, plan: JobPlan, times: int, runner: Any, lease: Lease | None = None, returns: int = 0
) -> None:
    for _ in range(times):
        current = plan.current(NETWORK_TASK)
        lost = DeviceLost("the session was lost", b"a")
        await failed.device_lost(plan, cast(StageRunner, runner), STEP, lease, current, lost, returns)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (StepFailed("the disk is full"), "compile failed: the disk is full"),
        (ModelRejected("cut the model"), "cut the model"),
        (KeyError("x"), "compile failed: KeyError: 'x'"),
        (OSError(5, "bad disk"), "compile failed: OSError: [Errno 5] bad disk"),
        (
            OSError(errno.EAGAIN, "try again"),
            f"compile failed: BlockingIOError: [Errno {errno.EAGAIN}] try again."
            " Raise the limit of processes (`ulimit -u`, TasksMax= of a service), then submit again",
        ),
    ],
)
def test_a_network_that_cannot_be_made_is_explained(error: Exception, message: str) -> None:
    plan = importing()
    give_up(plan, NETWORK_TASK, "compile", error)
    assert plan.failure is not None
    assert plan.failure.message == message


def test_a_backend_that_does_not_open_is_explained() -> None:
    assert not_opened("mine", ModelRejected("no model")).message == "no model"
    assert not_opened("mine", KeyError("x")).message == "backend 'mine' raised when it opened the job: KeyError: 'x'"


def test_a_device_whose_cores_were_taken_costs_no_task_and_no_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failed_steps.machine, "forbidden", sorted)
    monkeypatch.setattr(failed_steps, "CORES_TAKEN_PAUSE_S", 0.0)
    plan, runner, lease = importing(), Runner(), Lease("import", ("cpu0",), (1,), 20.0)
    asyncio.run(lose(FailedSteps(cast(DaemonSession, Line())), plan, 3 * DEVICE_LOSSES_MAX, runner, lease))
    assert plan.failure is None
    assert not runner.blamed


def test_a_task_fails_after_losses_of_its_device_in_a_row_and_not_after_others() -> None:
    """A record of the task in between shows progress."""

    async def work() -> None:
        plan, runner, failed = importing(), Runner(), FailedSteps(cast(DaemonSession, Line()))
        for _ in range(2):
            await lose(failed, plan, DEVICE_LOSSES_MAX - 1, runner)
            failed.measured(NETWORK_TASK)
        await lose(failed, plan, DEVICE_LOSSES_MAX - 1, runner)
        assert plan.failure is None
        assert len(runner.blamed) == 3 * (DEVICE_LOSSES_MAX - 1)
        await lose(failed, plan, 1, runner)
        assert plan.failure is not None
        assert plan.failure.message == "import failed: the session was lost: it ended the session"

    asyncio.run(work())


def test_a_loss_by_a_restart_of_the_daemon_blames_nothing() -> None:
    plan, runner = importing(), Runner()
    asyncio.run(lose(FailedSteps(cast(DaemonSession, Line())), plan, 3 * DEVICE_LOSSES_MAX, runner, returns=-1))
    assert plan.failure is None
    assert not runner.blamed


class NoBoards(Line):
    """A daemon without boards."""

    async def ask(self, *_: object) -> BoardAccess:
        raise AssertionError("a GPU is no board")


def test_a_gpu_that_is_lost_again_and_again_ends_the_task() -> None:
    async def run() -> JobPlan:
        failed, plan = FailedSteps(cast(DaemonSession, NoBoards())), importing()
        await lose(failed, plan, DEVICE_LOSSES_MAX, Runner(), Lease("evaluate", ("gpu0",), (), 60.0, gpu="GPU-0"))
        return plan

    failure = asyncio.run(run()).failure
    assert failure is not None
    assert failure.message == "import failed: the session was lost"
