"""Jobs of TVM programs that request boards as from TVM's tracker. Their sessions are scheduled as steps.

All requests of one machine for one kind of board with one priority form a job: each request is a task that waits for a
board, each session is a step. A program therefore waits in the same queue as other jobs, appears in the same commands,
and never shares a board with a step of another job. The job ends some time after its last session.

Such a job has no client process. This module reports to the scheduler instead.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from autosched.core.actions import RevokeStep
from autosched.core.events import ClientAttached, ClientLost, Event, JobSubmitted, StepEnded
from autosched.daemon.boards.board_registry import BoardRegistry
from autosched.daemon.boards.board_sessions import BoardSessions
from autosched.daemon.runtime import Runtime, spawn
from autosched.errors import Refused
from autosched.model import (
    DEVICE_POOL,
    TASKS_MAX,
    JobId,
    JobLoad,
    JobSpec,
    Outcome,
    Step,
    StepId,
    TaskIndex,
    TaskLoad,
)

BACKEND = "tvm-rpc"
"""Name of the backend in such jobs; no plugin has it."""
STAGE = "session"
NO_MODEL = "0" * 64
LINGER_S = 20.0
"""Seconds without a request or a session after which a program's job is done; less than clients may be silent."""
CLAIM_S = 10.0
"""Seconds within which a program uses a granted session."""
KIND_S = 60.0
"""Maximum seconds that a request waits for the first board of its kind."""
LOOK_S = 0.5
"""Seconds between two checks for that board."""
PRIORITY_MAX = 100


@dataclass(eq=False)
class Asked:
    """A request for a board."""

    program: "_Program"
    task: TaskIndex
    granted: asyncio.Future[str]
    """Set to the key of the session."""
    step: StepId | None = None
    began: bool = False
    """Whether the program has used the session."""
    failed: str = ""
    """Why the daemon ends the session; empty if it does not."""


@dataclass(eq=False)
class _Program:
    """The requests of one machine for one kind of boards, with one priority."""

    peer: str
    kind: str
    priority: int
    job: JobId = 0
    """0 before the job is submitted."""
    over: bool = False
    """Whether the job has ended."""
    waiting: dict[TaskIndex, Asked] = field(default_factory=dict)
    running: dict[StepId, Asked] = field(default_factory=dict)
    idle_since: float = 0.0

    @property
    def is_idle(self) -> bool:
        return not self.waiting and not self.running


class ProgramJobs:
    """Jobs of all such programs."""

    def __init__(
        self,
        runtime: Runtime,
        registry: BoardRegistry,
        sessions: BoardSessions,
        limits: Callable[[], tuple[int, float]],
    ) -> None:
        """`limits`: the maximum number of active jobs, and the time limit of a session in seconds."""
        self._runtime, self._registry, self._sessions, self._limits = runtime, registry, sessions, limits
        self._programs: dict[tuple[str, str, int], _Program] = {}
        self._of: dict[JobId, _Program] = {}

    def resume(self) -> None:
        """End the jobs of the earlier daemon, whose sessions have ended with it."""
        state = self._runtime.state
        for job in [job for job in state.active if state.jobs[job].spec.backend == BACKEND]:
            self._lose(job, "the daemon was started again, and its sessions with boards ended")

    def has(self, job: JobId) -> bool:
        """Whether a job is one of such a program."""
        return job in self._of

    # Requests of programs --------------------------------------------------------------------------------------------

    async def kind_of(self, key: str) -> str:
        """The kind of board that a key names. Waits for the first board of the kind. Raises Refused."""
        until = asyncio.get_running_loop().time() + KIND_S
        while True:
            kind = self._registry.kind(key)
            queue = self._runtime.state.queues.get(DEVICE_POOL + kind)
            if queue is not None and queue.pool.units[0].is_board:
                return kind
            if asyncio.get_running_loop().time() > until:
                raise Refused(f"no board is of the kind {key!r}, and none has registered itself within {KIND_S:g} s")
            await asyncio.sleep(LOOK_S)

    def ask(self, kind: str, priority: int, peer: str) -> Asked:
        """Add a request for a board. Raises Refused."""
        priority = max(-PRIORITY_MAX, min(PRIORITY_MAX, priority))
        key = peer, kind, priority
        if (program := self._programs.get(key)) is None:
            if len(self._runtime.state.active) >= (most := self._limits()[0]):
                raise Refused(f"{most} jobs are active, which is limits.jobs_active_max")
            program = self._programs[key] = _Program(peer, kind, priority)
            self._runtime.tell(partial(self._submitted, program))
        taken = {*program.waiting, *(asked.task for asked in program.running.values())}
        if len(taken) >= TASKS_MAX:
            raise Refused(f"{TASKS_MAX} requests of this machine wait already")
        task = next(task for task in range(1, TASKS_MAX + 1) if task not in taken)
        asked = Asked(program, task, asyncio.get_running_loop().create_future())
        program.waiting[asked.task] = asked
        self._runtime.tell(partial(self._load, program))
        return asked

    def withdraw(self, asked: Asked) -> None:
        """Withdraw a request whose program has hung up."""
        program = asked.program
        if program.waiting.get(asked.task) is asked:
            del program.waiting[asked.task]
            self._runtime.tell(partial(self._load, program))
            self._look(program)
        elif asked.step is not None:
            self._end(asked, "its program has hung up")

    def waiting(self, kind: str) -> int:
        """Number of tasks of all jobs that wait for a board of a kind."""
        queue = self._runtime.state.queues.get(DEVICE_POOL + kind)
        return queue.waiting if queue is not None else 0

    # Actions of the scheduler -----------------------------------------------------------------------------------------

    def start_step(self, step: Step) -> None:
        """Start the session of a request that has its board."""
        program = self._of[step.job]
        asked = program.waiting.pop(step.task, None)
        if asked is None:  # it was withdrawn meanwhile
            self._runtime.tell(partial(self._ended, step.id, step.task, Outcome.DONE, ""))
            return self._look(program)
        asked.step = step.id
        program.running[step.id] = asked
        spawn(self._grant(asked, step.id), "a session of a program of TVM's")

    async def _grant(self, asked: Asked, step: StepId) -> None:
        """Give a request its key, and end its step if the key is not used."""
        try:
            access = await self._sessions.access(
                step, began=partial(self._began, asked), over=partial(self._over, asked, step)
            )
        except Refused as error:
            return self._over(asked, step, str(error))
        if not asked.granted.done():
            asked.granted.set_result(access.key)
        await asyncio.sleep(CLAIM_S)
        if not asked.began:
            self._end(asked, f"its program has not used it within {CLAIM_S:g} s")

    def revoke_step(self, action: RevokeStep) -> None:
        """End the session of a revoked step."""
        asked = self._of[action.job].running.get(action.step)
        if asked is not None:
            self._end(asked, action.reason)

    def stop(self, job: JobId, reason: str) -> None:
        """End the sessions and requests of a job that has ended or is given up."""
        program = self._of[job]
        self._forget(program)
        for asked in program.waiting.values():
            if not asked.granted.done():
                asked.granted.set_exception(Refused(f"job {job} has ended: {reason}"))
                asked.granted.exception()  # the program may have hung up
        program.waiting.clear()
        for asked in tuple(program.running.values()):
            self._end(asked, reason)
        if not program.running:
            self._lose(job, reason)

    # Sessions ---------------------------------------------------------------------------------------------------------

    def _began(self, asked: Asked) -> None:
        asked.began = True

    def _end(self, asked: Asked, why: str) -> None:
        """End a session on the daemon's side."""
        assert asked.step is not None
        asked.failed = asked.failed or why
        if not self._sessions.end(asked.step, why):
            self._over(asked, asked.step, why)

    def _over(self, asked: Asked, step: StepId, trouble: str) -> None:
        """Report the end of a session."""
        program = asked.program
        if program.running.pop(step, None) is None:
            return
        error = asked.failed or trouble
        outcome = Outcome.FAILED if error else Outcome.DONE
        self._runtime.tell(partial(self._ended, step, asked.task, outcome, error))
        self._look(program)

    def _look(self, program: _Program) -> None:
        """Let the job of an idle program end after a while."""
        if not program.is_idle:
            return
        loop = asyncio.get_running_loop()
        program.idle_since = loop.time()
        if program.over:
            self._of.pop(program.job, None)
        else:
            loop.call_later(LINGER_S, self._finish, program, program.idle_since)

    def _finish(self, program: _Program, since: float) -> None:
        if program.is_idle and program.idle_since == since and not program.over:
            self._forget(program)
            self._runtime.tell(partial(self._done, program))

    def _forget(self, program: _Program) -> None:
        """Put the program's next request into another job."""
        program.over = True
        key = program.peer, program.kind, program.priority
        if self._programs.get(key) is program:
            del self._programs[key]

    # Events -----------------------------------------------------------------------------------------------------------

    def _submitted(self, program: _Program) -> Event:
        program.job = self._runtime.state.last_job + 1
        self._of[program.job] = program
        spec = JobSpec(
            name=f"tvm-{program.kind}"[:200], model=NO_MODEL, device=program.kind, backend=BACKEND, external=True,
            priority=program.priority, step_timeout_s=self._limits()[1],
        )  # fmt: skip
        return JobSubmitted(program.job, spec, f"tvm@{program.peer}")

    def _load(self, program: _Program) -> Event | None:
        """The load of the waiting requests, as a client reports it."""
        job = self._runtime.state.jobs.get(program.job)
        if job is None or job.state.ended:
            return None
        pools = (DEVICE_POOL + program.kind,)
        waiting = tuple(TaskLoad(task=index, resources_next=pools, stage_next=STAGE) for index in program.waiting)
        return ClientAttached(program.job, JobLoad(tasks=waiting), tuple(job.steps))

    def _ended(self, step: StepId, task: TaskIndex, outcome: Outcome, error: str) -> Event | None:
        if (running := self._runtime.state.steps.get(step)) is None:
            return None
        waits = self._of.get(running.job)
        load = TaskLoad(task=task)
        if waits is not None and task in waits.waiting:
            load = TaskLoad(task=task, resources_next=(DEVICE_POOL + waits.kind,), stage_next=STAGE)
        return StepEnded(step, outcome, JobLoad(tasks=(load,)), error[:4_000])

    def _done(self, program: _Program) -> Event | None:
        job = self._runtime.state.jobs.get(program.job)
        self._of.pop(program.job, None)
        if job is None or job.state.ended:
            return None
        return ClientAttached(program.job, JobLoad(complete=True), tuple(job.steps))

    def _lose(self, job: JobId, reason: str) -> None:
        def lost() -> Event | None:
            self._of.pop(job, None)
            known = self._runtime.state.jobs.get(job)
            return None if known is None or (known.state.ended and not known.steps) else ClientLost(job, reason)

        self._runtime.tell(lost)
