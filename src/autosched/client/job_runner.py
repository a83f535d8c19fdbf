"""Hosts one job: answers the daemon's calls, runs the steps that it orders, and reports each with the new load."""

import asyncio
import logging
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from autosched import backend, machine, stages
from autosched.backend import TUNED, Lease
from autosched.client import backend_boundary, job_files, publication
from autosched.client.away_step import AwayStep, HelperLost
from autosched.client.daemon_session import DaemonSession
from autosched.client.failed_steps import FailedSteps, not_opened
from autosched.client.helpers import Helpers
from autosched.client.interference import InterferenceMonitor
from autosched.client.network_import import Past, import_network
from autosched.client.pinning import in_thread, keep_to, on_lane
from autosched.client.plan.early_builds import BuildMeasurement
from autosched.client.plan.job_plan import JobPlan
from autosched.client.plan.task_state import Round
from autosched.client.record_outbox import RecordOutbox
from autosched.client.round_work import Timed
from autosched.client.shared_knowledge import SharedKnowledge
from autosched.client.stage_runner import StageRunner
from autosched.client.watchdog_process import WatchdogProcess
from autosched.errors import AutoschedError, DeviceLost, RequestError, WireError
from autosched.machine import cores_of
from autosched.model import (
    JobLoad,
    Outcome,
    Purpose,
    Record,
    Step,
    StepId,
    TaskIndex,
)
from autosched.protocol import (
    AskLoad,
    BlockCandidates,
    BoardAccess,
    Done,
    EndStep,
    GetBoard,
    GetOrder,
    Goodbye,
    JobOrder,
    Method,
    PartEnded,
    Return,
    RevokeStep,
    StartStep,
    Stop,
    TagRecords,
)
from autosched.sentinel import run_sentinel

log = logging.getLogger(__name__)

KILL_GRACE_S = 5.0
"""Maximum seconds that a step may run after its processes were killed. If it does not end, this process ends."""
LAST_STAGE_S = 15.0
"""Assumed seconds of the last compile and of the last evaluate, until one was measured."""
LAST_STAGES_GROWTH = 1.5
"""The last build takes this many times as long as an early one: it contains and compares more."""
WATCHDOG_S = 1.0
"""Without an order, the client kills a step this many seconds after its time limit: the daemon may be gone. WATCHDOG_S
and KILL_GRACE_S together are less than the daemon's own grace."""
BACKSTOP_S = 1.0
"""Extra grace before the backstop kills a frozen client, in seconds."""
UNITS_OF_DEVICE = 2
"""Assumed number of other hosts' units for each device: a lane and the device."""
THREADS_MAX = 4_096
"""Maximum threads; more than the lanes and devices of any machine, since a step that waits for a thread wastes its
lease."""
T = TypeVar("T")


class JobRunner:
    """State of one job in this process, and its session with the daemon."""

    def __init__(self, workdir: Path, line: DaemonSession, backstop: WatchdogProcess | None = None) -> None:
        self._workdir = workdir
        self._line = line
        self._backstop = backstop
        self._outdir = workdir / "out"
        self._plan: asyncio.Future[JobPlan] = asyncio.get_running_loop().create_future()
        self._runner: StageRunner | None = None
        self._past = Past()
        self._shared = SharedKnowledge(line, workdir)
        self._helpers = Helpers(line, workdir)
        self._reports = publication.NetworkReports(line)
        self._outbox = RecordOutbox(line, self._end_process)
        self._began_at = asyncio.get_running_loop().time()
        self._age_s = 0.0
        """Age of the job at the start of this client, in seconds."""
        self._board = False
        """Whether the job's devices are boards."""
        self._failed = FailedSteps(line)
        self._leases: dict[StepId, Lease] = {}
        self._held: dict[StepId, None] = {}
        """Steps that run, or whose end the daemon has not acknowledged."""
        self._running: set[asyncio.Task[None]] = set()
        self._pool = ThreadPoolExecutor(THREADS_MAX, "step")

    # Begin and end ------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Fetch the job, its model and its records, and open the backend."""
        order = await self._line.ask(GetOrder(), JobOrder)
        keep_to(order.host_cores)
        self._helpers.host, self._board = order.host, order.board
        model = await job_files.fetch_inputs(self._line, order.spec, self._workdir)
        plan = JobPlan(order.spec, lanes=order.lanes, devices=order.devices)
        try:
            session = await asyncio.to_thread(
                lambda: backend_boundary.opened(
                    backend.load(order.spec.backend), order.spec, model, self._workdir, order.device_cores
                )
            )
            if order.earlier and not session.learns:
                raise RequestError(
                    f"backend {order.spec.backend!r} cannot learn from earlier jobs: submit again without learn_from"
                )
        except Exception as error:  # boundary to plugin code
            if not isinstance(error, AutoschedError):
                log.warning("the backend does not open the job", exc_info=error)
            plan.broken(not_opened(order.spec.backend, error))
        else:
            self._runner = StageRunner(session, order.spec, self._keep, plan.blocked, self._timed, self._helpers.bring)
            self._runner.on_board = order.spec.device if order.board else ""
            plan.elsewhere = order.units_elsewhere if self._runner.movable else 0
            if self._runner.divisible:
                self._runner.devices = order.devices + plan.elsewhere // UNITS_OF_DEVICE
            borrowed: list[Record] = []
            if order.spec.records_from is not None:
                borrowed = await self._shared.records_of(order.spec.records_from)
            await self._shared.fetch_teachers(order.spec, order.earlier)
            own = await self._shared.records_of(order.job)
            self._past = Past([*borrowed, *own], len(borrowed), order.identities, order.device_cores)
            self._runner.next_number = max((record.number for record in own), default=-1) + 1
        if order.network is not None:
            plan.early.resume(order.status)
            self._shared.recalled_before = order.status.recalled
        self._age_s = order.age_s
        self._plan.set_result(plan)

    async def _begun(self) -> JobPlan:
        """The job's plan, once the backend has opened it. Cancelling a caller does not cancel the opening."""
        return await asyncio.shield(self._plan)

    def standing(self) -> Return | None:
        """The message to a daemon after a reconnect; None before the first report of a load."""
        if not self._plan.done():
            return None
        return Return(steps=tuple(self._held), load=self._plan.result().load())

    def kill(self) -> None:
        """End all processes that work for this job."""
        if self._runner is not None:
            self._runner.kill()

    def _end_process(self, code: int = 1) -> None:
        """End all of them, and this one. The daemon starts another client if the job is not over."""
        self.kill()
        os._exit(code)

    # What the daemon asks -----------------------------------------------------------------------------------

    async def handle(self, method: Method) -> Struct:
        """Answer one call of the daemon."""
        match method:
            case AskLoad():
                return (await self._begun()).load()
            case StartStep():
                self._start(method)
            case RevokeStep():
                self._revoke(method)
            case PartEnded():
                self._helpers.part_ended(method)
            case TagRecords(numbers=numbers, reason=reason):
                self._tag(await self._begun(), numbers, reason)
            case BlockCandidates(candidates=candidates):
                (await self._begun()).blocked.note(candidates)
            case Goodbye(reason=reason):
                log.info("the daemon goes, and comes back: %s", reason)
            case Stop(reason=reason):
                log.info("stopping: %s", reason)
                self._end_process(0)
            case _:
                raise WireError(f"a client does not answer {type(method).__name__}")
        return Done()

    def _start(self, order: StartStep) -> None:
        step = order.step
        if step.id in self._held:
            return  # already reported
        # on another machine than the daemon's these core numbers may not exist
        cores = () if self._helpers.is_away(step.units) else cores_of(order.cores)
        lease = Lease(
            stage=step.stage, units=step.units, cores=cores, timeout_s=order.timeout_s, step=step.id, gpu=order.gpu
        )
        self._leases[step.id], self._held[step.id] = lease, None
        overdue = RevokeStep(step=step.id, reason=f"its {order.timeout_s:.0f} s are over, and it was not revoked")
        watchdog = asyncio.get_running_loop().call_later(order.timeout_s + WATCHDOG_S, self._revoke, overdue)
        if self._backstop is not None:
            self._backstop.expect(step.id, order.timeout_s + WATCHDOG_S + KILL_GRACE_S + BACKSTOP_S)
        task = asyncio.get_running_loop().create_task(self._run(order, lease))
        self._running.add(task)
        task.add_done_callback(lambda task: self._finished(task, watchdog))

    def _finished(self, task: asyncio.Task[None], watchdog: asyncio.TimerHandle) -> None:
        watchdog.cancel()
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a step could not be reported; ending", exc_info=error)
            self._end_process()  # the daemon counts the step as lost, and starts a client that resumes from the records

    def _revoke(self, order: RevokeStep) -> None:
        """Kill the processes of a step. If the step does not end then, it hangs in this process: end the process."""
        lease = self._leases.get(order.step)
        if lease is None or self._runner is None:
            return
        log.warning("step %d is revoked: %s", order.step, order.reason)
        if self._helpers.is_away(lease.units):
            return self._helpers.stop(order)
        self._runner.kill(lease)

        def check() -> None:
            if order.step in self._leases:
                said = "step %d does not end: its stage %s hangs in the backend's own code; ending this process"
                log.error(said, order.step, lease.stage)
                self._end_process()

        asyncio.get_running_loop().call_later(KILL_GRACE_S, check)

    # Steps --------------------------------------------------------------------------------------------------

    async def _run(self, order: StartStep, lease: Lease) -> None:
        """Run one step to its end and report the outcome."""
        step, plan, returns = order.step, await self._begun(), self._line.returns
        current, outcome, error = plan.started(step.task, step.stage), Outcome.DONE, ""
        kind = "" if current is None else current.kind
        started_at = asyncio.get_running_loop().time()
        watch = InterferenceMonitor(() if on_lane(lease) else lease.cores)
        away = self._helpers.begin(order)
        try:
            if taken := machine.forbidden(watch.cores):
                raise DeviceLost(machine.cores_taken(taken))
            if self._board and not on_lane(lease) and current is not None:
                lease = self._leases[step.id] = await self._on_board(lease)
                if order.sentinel and self._runner is not None:
                    watch.board = await self._in_thread(lease, partial(self._runner.sentinel, lease))
            if watch.cores and current is not None:
                await self._in_thread(lease, lambda: watch.begin(run_sentinel if order.sentinel else None))
            if self._deadline_is_near(plan):
                plan.out_of_time()
            if current is not None:
                await self._stage(plan, step, current, lease, watch, away)
                self._failed.over(step.task)
        except HelperLost as lost:
            outcome, error = Outcome.FAILED, str(lost)
            log.warning("step %d (%s) is lost: %s", step.id, step.stage, lost)
            if self._helpers.lost(lost):
                await self._report_status(plan)
            plan.lost(step.task)
        except DeviceLost as lost:
            outcome, error = Outcome.FAILED, str(lost)
            log.warning("step %d (%s) has lost its device: %s", step.id, step.stage, lost)
            lease_now = self._leases.get(step.id)
            await self._failed.device_lost(plan, self._runner, step, lease_now, current, lost, returns)
        except Exception as exc:  # boundary to plugin code: any exception is this step's failure
            outcome, error = Outcome.FAILED, await self._failed.failed(plan, step, exc)
        del self._leases[step.id]
        if self._backstop is not None:
            self._backstop.ended(step.id)
        worked_s = asyncio.get_running_loop().time() - started_at if away is None else away.worked_s
        if current is not None and not current.shared and (outcome is Outcome.DONE or away is None):
            plan.durations_s[kind].append(worked_s)
        note = watch.note if away is None else away.device
        end = EndStep(step=step.id, outcome=outcome, load=JobLoad(), error=error[:4_000], worked_s=worked_s, note=note)

        def say(again: bool) -> EndStep:
            load = plan.load() if again else plan.take_changes(step.task)
            return msgspec.structs.replace(end, load=load)

        await self._line.end(say)
        del self._held[step.id]

    def _deadline_is_near(self, plan: JobPlan) -> bool:
        """Whether a search for a latency must end now, so that the network is compiled and measured before the
        deadline."""
        deadline_s = plan.spec.deadline_s
        if deadline_s is None or not plan.spec.names_latency:
            return False
        rest_s = sum(max(plan.durations_s[stage], default=LAST_STAGE_S) for stage in (stages.COMPILE, stages.EVALUATE))
        age_s = self._age_s + asyncio.get_running_loop().time() - self._began_at
        return age_s + LAST_STAGES_GROWTH * rest_s >= deadline_s

    async def _stage(
        self, plan: JobPlan, step: Step, current: Round, lease: Lease, watch: InterferenceMonitor, away: AwayStep | None
    ) -> None:
        runner, task, stage = self._runner, step.task, step.stage
        assert runner is not None, "a job without a session reports no stage to run"
        match stage:
            case stages.IMPORT:
                await self._import(plan, lease)
            case stages.BASELINE:
                plan.baseline(await self._in_thread(lease, lambda: runner.baseline(lease)))
                await self._report_status(plan)
            case stages.SELECT:
                count = await self._in_thread(lease, lambda: runner.select(task, current, lease))
                plan.selected(task, count)
            case stages.BUILD:
                await self._in_thread(lease, lambda: runner.build(task, current, lease, away))
                if away is None:
                    await asyncio.to_thread(backend_boundary.check_space, self._workdir, current.built)
                self._helpers.worked(away)
                assert plan.network is not None
                await self._shared.look_up(plan.spec, plan.network, runner.unknown_codes(current))
                plan.advanced(task)
            case stages.PROFILE:
                await self._profile(plan, task, current, lease, watch, away)
                plan.advanced(task)
            case stages.UPDATE:
                best_s = await self._in_thread(lease, lambda: runner.update(task, current, lease))
                plan.updated(task, best_s)
            case stages.COMPILE:
                records = [record for state in plan.tasks.values() for record in state.records]
                build = runner.compile_early if plan.early.under_way else runner.compile
                await self._in_thread(lease, lambda: build(records, lease, self._shared.elsewhere))
                plan.compiled()
            case stages.EVALUATE if plan.early.under_way:
                evaluation = await self._in_thread(lease, lambda: runner.evaluate_early(lease))
                await self._in_thread(lease, watch.end)
                await self._keep_early(plan, step.id, evaluation, disturbed=bool(watch.disturbed))
            case stages.EVALUATE:
                evaluation = await self._in_thread(lease, lambda: runner.evaluate(lease))
                await self._in_thread(lease, watch.end)
                comparison, published = plan.early.comparison, evaluation.published
                if comparison is not None and comparison.module_s is not None and published != TUNED:
                    log.warning("the last build is not used: %s. The module that was kept stays", evaluation.notes)
                    published = ""
                else:
                    await publication.hand_over(self._line, self._outdir, evaluation)
                last = BuildMeasurement.of(step.id, evaluation, disturbed=bool(watch.disturbed))
                result = next((timing for timing in evaluation.timings if timing.name == published), None)
                plan.evaluated(last, result)
                await self._report_status(plan)
            case _:
                raise RequestError(f"no stage is named {stage!r}")

    async def _import(self, plan: JobPlan, lease: Lease) -> None:
        runner = self._runner
        assert runner is not None
        known = await import_network(plan, runner, self._past, self._shared, lease, partial(self._in_thread, lease))
        await self._reports.imported(plan, runner, moves=self._helpers.are_of_use)
        for record in known:
            self._outbox.add(record)
        runner.next_number += len(known)
        assert plan.network is not None
        await self._shared.describe(plan.network, runner.program)

    def _timed(self, code: str) -> Timed | None:
        """The known timing of object code; called from worker threads."""
        if (record := self._plan.result().timing(code)) is not None:
            known = record.detail if record.purpose is Purpose.KNOWN else ""
            return Timed(record.latency_s, known or f"record {record.number}")
        return self._shared.timings.get(code)

    async def _report_status(self, plan: JobPlan) -> None:
        assert self._runner is not None
        await self._reports.changed(plan, self._runner, moves=self._helpers.are_of_use)

    async def _keep_early(
        self, plan: JobPlan, step: StepId, evaluation: backend.Evaluation, *, disturbed: bool
    ) -> None:
        """Hand over a build made during the search if it is correct, and faster than both the baseline and the user's
        present module."""
        build = BuildMeasurement.of(step, evaluation, disturbed=disturbed)
        if build is None:
            raise RequestError(f"the backend's early evaluation has no timing of {TUNED!r}")
        known = plan.early.comparison
        better = known is None or known.module_s is None or build.latency_s < known.module_s
        if kept := evaluation.published == TUNED and better:
            await publication.hand_over(self._line, self._outdir, evaluation)
        else:
            log.info("an early build is not kept: %s", "; ".join(evaluation.notes) or "it is not clearly faster")
        after_s = asyncio.get_running_loop().time() - self._began_at
        plan.evaluated_early(build, evaluation.operators, kept=kept, after_s=after_s)
        await self._report_status(plan)

    async def _profile(
        self,
        plan: JobPlan,
        task: TaskIndex,
        current: Round,
        lease: Lease,
        watch: InterferenceMonitor,
        away: AwayStep | None,
    ) -> None:
        """Measure the round's candidates or a share of them, and tag the records that other load disturbed."""
        runner = self._runner
        assert runner is not None
        if current.steps > 1 and not current.is_search:
            return  # another step measures all of them
        numbers: list[int] = []
        try:
            await self._in_thread(lease, lambda: runner.profile(task, current, lease, away, numbers))
            self._helpers.worked(away)
        finally:
            await self._in_thread(lease, watch.end)
            disturbed = watch.disturbed if away is None else away.disturbed
            if disturbed and (told := tuple(numbers)):
                self._tag(plan, told, disturbed)
                self._outbox.tag(told, disturbed)
        if current.steps == 1:
            self._helpers.forget(current.built)

    # Boards -----------------------------------------------------------------------------------------------------------

    async def _on_board(self, lease: Lease) -> Lease:
        """The lease with the address of its board."""
        found = await self._line.ask(GetBoard(step=lease.step), BoardAccess)
        return msgspec.structs.replace(lease, board=backend.Board(found.host, found.port, found.key))

    def _tag(self, plan: JobPlan, numbers: Iterable[int], reason: str) -> None:
        tagged = plan.tagged(numbers, reason)
        if tagged:
            log.info("%d records were disturbed: %s", len(tagged), reason)

    async def _in_thread(self, lease: Lease, work: Callable[[], T]) -> T:
        return await in_thread(self._pool, lease, work)

    def _keep(self, record: Record) -> None:
        """Send a record; called from worker threads for each record."""
        self._plan.get_loop().call_soon_threadsafe(self._note, record)

    def _note(self, record: Record) -> None:
        self._failed.measured(record.task)
        self._plan.result().recorded(record)
        self._outbox.add(record)
