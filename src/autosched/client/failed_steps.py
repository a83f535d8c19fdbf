"""Decides after a failed step whether its stage is repeated, or its task or job gives up."""

import asyncio
import errno
import logging
import os
from collections import Counter

from autosched import machine
from autosched.backend import Lease
from autosched.client import backend_boundary
from autosched.client.daemon_session import DaemonSession
from autosched.client.hindrances import Hindrances
from autosched.client.plan.job_plan import JobPlan
from autosched.client.plan.task_state import Round
from autosched.client.stage_runner import StageRunner
from autosched.errors import AutoschedError, DeviceLost, RequestError, StepFailed, TargetUnfit
from autosched.model import NETWORK_TASK, JobFailure, Step, TaskIndex
from autosched.protocol import BoardAccess, GetBoard

log = logging.getLogger(__name__)

CORES_TAKEN_PAUSE_S = 3.0
"""Seconds in which the daemon notices that a device's cores may not be used any more."""
DEVICE_LOSSES_MAX = 10
"""Maximum steps in a row in which a task may lose its device; then the task fails."""
LIMITS = {
    errno.EAGAIN: "processes (`ulimit -u`, TasksMax= of a service)",
    errno.EMFILE: "open files (`ulimit -n`, LimitNOFILE= of a service)",
    errno.ENOMEM: "memory (MemoryMax= of a service)",
}
"""Limits of the operating system, by error number."""


class FailedSteps:
    """Failures of a job's steps in a row, and what to do about the last one."""

    def __init__(self, line: DaemonSession) -> None:
        self._line = line
        self._device_losses: Counter[TaskIndex] = Counter()
        """Number of a task's steps in a row that lost their device without a measurement."""
        self._hindrances = Hindrances()

    def over(self, task: TaskIndex) -> None:
        """Note that a step of the task has done its work."""
        self.measured(task)
        self._hindrances.over()

    def measured(self, task: TaskIndex) -> None:
        """Note a record of the task, which shows progress."""
        self._device_losses.pop(task, None)

    async def device_lost(
        self, plan: JobPlan, runner: StageRunner | None, step: Step, lease: Lease | None, current: Round | None,
        lost: DeviceLost, returns: int,
    ) -> None:  # fmt: skip
        """Repeat the stage without the candidates that were measured. A candidate that ran during two losses is blamed.
        If the client has reconnected meanwhile, the restart of the daemon lost the device, and no candidate is blamed.
        If this process lost the device's cores, it waits a little: the daemon notices that too, and gives the device no
        steps."""
        if lease is not None and machine.forbidden(lease.cores):
            await asyncio.sleep(CORES_TAKEN_PAUSE_S)
            plan.lost(step.task)
            return
        why = str(lost)
        try:
            if lease is None or not lease.gpu:
                why = (await self._line.ask(GetBoard(step=step.id), BoardAccess)).trouble or why
        except RequestError as error:  # the step was revoked, or the daemon was restarted
            why, returns = str(error), -1
        if runner is not None and current is not None and self._line.returns == returns:
            self._device_losses[step.task] += 1
            if lost.candidate is not None:
                runner.blame(step.task, current, lost.candidate, step.units[0], why)
            if self._device_losses[step.task] >= DEVICE_LOSSES_MAX:
                give_up(plan, step.task, step.stage, StepFailed(why if why == str(lost) else f"{lost}: {why}"))
                return
        plan.lost(step.task)

    async def failed(self, plan: JobPlan, step: Step, error: Exception) -> str:
        """Returns words for the end of a step that failed. The stage is repeated after a pause if the job is not to
        blame."""
        if not (why := self._hindrances.cause(error)):
            log.warning("step %d (%s) failed", step.id, step.stage, exc_info=error)
            give_up(plan, step.task, step.stage, error)
            return f"{type(error).__name__}: {error}{_place(error)}"
        pause_s = self._hindrances.pause_s()
        log.warning("step %d (%s) is repeated in %.0f s: %s", step.id, step.stage, pause_s, why)
        await asyncio.sleep(pause_s)
        plan.lost(step.task)
        return f"it is repeated: {why}"


def give_up(plan: JobPlan, task: TaskIndex, stage: str, error: Exception) -> None:
    """End the round of a task; end the job if the stage of the network is necessary, or if the target does not fit."""
    said = _in_words(error)
    unfit = isinstance(error, TargetUnfit)
    if task != NETWORK_TASK and not unfit:
        plan.failed(task, plan.current(task).results, f"{stage}: {said}"[:2_000])
    elif plan.optional and not unfit:
        plan.gave_up_early()
    elif isinstance(error, RequestError):
        plan.broken(JobFailure(error.code, said[:4_000]))
    else:
        plan.broken(JobFailure("job_failed", f"{stage} failed: {said}"[:4_000]))


def not_opened(backend: str, error: Exception) -> JobFailure:
    """Why a job has no session, because its backend does not open it."""
    if isinstance(error, AutoschedError):
        return JobFailure(error.code, str(error)[:4_000])
    return JobFailure("job_failed", f"backend {backend!r} raised when it opened the job: {_in_words(error)}"[:4_000])


def _in_words(error: Exception) -> str:
    """The error in words; for a limit of the operating system, also which one to raise."""
    if isinstance(error, AutoschedError):
        return str(error)
    limit = LIMITS.get(error.errno or 0) if isinstance(error, OSError) else None
    advice = f". Raise the limit of {limit}, then submit again" if limit else ""
    return f"{type(error).__name__}: {error}{_place(error)}{advice}"


def _place(error: Exception) -> str:
    """Position in the backend's own code where the error was raised, for its author; empty for errors that explain
    themselves."""
    at = None if isinstance(error, AutoschedError) else backend_boundary.raised_at(error)
    return f" ({os.path.basename(at.filename)}:{at.lineno}, {at.name})" if at is not None else ""
