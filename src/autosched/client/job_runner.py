"""Hosts one job: answers the daemon's calls, runs the steps that it orders, and reports each with the new load."""

import asyncio
import errno
import logging
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from autosched import backend, machine, stages
from autosched.backend import EVALUATION, TUNED, Built, Lease
from autosched.client import backend_boundary, job_files
from autosched.client.away_step import AwayStep, HelperLost
from autosched.client.daemon_session import DaemonSession
from autosched.client.hindrances import Hindrances
from autosched.client.interference import InterferenceMonitor
from autosched.client.moved_builds import MovedBuilds
from autosched.client.pinning import in_thread, keep_to, on_lane
from autosched.client.plan import known_schedules, latency_goal, rounds
from autosched.client.plan.early_builds import BuildMeasurement
from autosched.client.plan.job_plan import JobPlan
from autosched.client.plan.task_state import Round
from autosched.client.round_work import Timed
from autosched.client.shared_knowledge import SharedKnowledge
from autosched.client.stage_runner import StageRunner
from autosched.client.watchdog_process import WatchdogProcess
from autosched.errors import AutoschedError, DeviceLost, RequestError, StepFailed, TargetUnfit, WireError
from autosched.machine import cores_of, peak_flops
from autosched.model import (
    NETWORK_TASK,
    OWN_HOST,
    IdentityFrom,
    JobFailure,
    JobLoad,
    JobSpec,
    Outcome,
    Purpose,
    Record,
    Step,
    StepId,
    TaskIndex,
    UnitName,
    host_of,
)
from autosched.protocol import (
    ARTIFACTS_SINCE,
    CODE_SINCE,
    KNOWN_SINCE,
    MEASUREMENTS_SINCE,
    AddArtifact,
    AddArtifacts,
    AddRecord,
    AskLoad,
    BoardAccess,
    Done,
    EndStep,
    ForgetMoved,
    GetBoard,
    GetOrder,
    Goodbye,
    JobOrder,
    Method,
    PartEnded,
    PartResult,
    PlanNetwork,
    Poisoned,
    ResultFile,
    Return,
    RevokeStep,
    RunElsewhere,
    StartStep,
    Stop,
    StopElsewhere,
    TagRecords,
)
from autosched.records.identity import moved
from autosched.sentinel import run_sentinel
from autosched.wire import blob_transfer

log = logging.getLogger(__name__)

KILL_GRACE_S = 5.0
"""Maximum seconds that a step may run after its processes were killed. If it does not end, this process ends."""
LAST_STAGE_S = 15.0
"""Assumed seconds of the last compile and of the last evaluate, until one was measured."""
LAST_STAGES_GROWTH = 1.5
"""Factor from the durations of an early build to those of the last one, which contains and compares more."""
WATCHDOG_S = 1.0
"""Without an order, the client kills a step this many seconds after its time limit: the daemon may be gone. WATCHDOG_S
and KILL_GRACE_S together are less than the daemon's own grace."""
BACKSTOP_S = 1.0
"""Extra grace before the backstop kills a frozen client, in seconds."""
CORES_TAKEN_PAUSE_S = 3.0
"""Seconds in which the daemon notices that a device's cores may not be used any more."""
DEVICE_LOSSES_MAX = 10
"""Maximum steps in a row in which a task may lose its device; then the task fails."""
USELESS_HELPERS_MAX = 3
"""Maximum helpers in a row that end without having done anything; then the client's stages stay on its own host."""
UNITS_OF_DEVICE = 2
"""Assumed number of other hosts' units for each device: a lane and the device."""
THREADS_MAX = 4_096
"""Maximum threads; more than the lanes and devices of any machine, since a step that waits for a thread wastes its
lease."""
LIMITS = {
    errno.EAGAIN: "processes (`ulimit -u`, TasksMax= of a service)",
    errno.EMFILE: "open files (`ulimit -n`, LimitNOFILE= of a service)",
    errno.ENOMEM: "memory (MemoryMax= of a service)",
}
"""Limits of the operating system, by error number."""
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
        self._records: list[Record] = []
        self._borrowed = 0  # number of leading records that come from another job
        self._shared = SharedKnowledge(line, workdir)
        self._began_at = asyncio.get_running_loop().time()
        self._device_cores = 0
        self._age_s = 0.0
        """Age of the job at the start of this client, in seconds."""
        self._identities: Sequence[IdentityFrom] = ()
        """Identities of the job's own records."""
        self._host = OWN_HOST
        """Host of this client."""
        self._board = False
        """Whether the job's devices are boards."""
        self._device_losses: Counter[TaskIndex] = Counter()
        """Number of a task's steps in a row that lost their device without a measurement."""
        self._builds = MovedBuilds(line, workdir / "moved")
        self._parts: dict[tuple[StepId, int], asyncio.Future[PartResult]] = {}
        """Parts of steps that helpers run."""
        self._useless_helpers = 0
        self._hindrances = Hindrances()
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
        self._host, self._board = order.host, order.board
        self._outdir.mkdir(parents=True, exist_ok=True)
        model = await job_files.fetch_inputs(self._line, order.spec, self._workdir)
        plan = JobPlan(order.spec, lanes=order.lanes, devices=order.devices)
        try:
            session = await asyncio.to_thread(
                lambda: backend.load(order.spec.backend).open(
                    order.spec, model, self._workdir, self._outdir, order.device_cores
                )
            )
            if order.earlier and not hasattr(session, "learn"):
                raise RequestError(
                    f"backend {order.spec.backend!r} cannot learn from earlier jobs: submit again without learn_from"
                )
        except AutoschedError as error:
            plan.broken(JobFailure(error.code, str(error)[:4_000]))
        except Exception as error:  # boundary to plugin code
            log.warning("the backend does not open the job", exc_info=error)
            said = f"backend {order.spec.backend!r} raised when it opened the job: {_in_words(error)}"
            plan.broken(JobFailure("job_failed", said[:4_000]))
        else:
            self._runner = StageRunner(session, order.spec, self._keep, plan.poison, self._timed, self._bring)
            self._runner.on_board = order.spec.device if order.board else ""
            plan.elsewhere = order.units_elsewhere if self._runner.movable else 0
            if self._runner.divisible:
                self._runner.devices = order.devices + plan.elsewhere // UNITS_OF_DEVICE
            if order.spec.records_from is not None:
                self._records += await self._shared.records_of(order.spec.records_from)
                self._borrowed = len(self._records)
            await self._shared.fetch_teachers(order.spec, order.earlier)
            own = await self._shared.records_of(order.job)
            self._records += own
            self._runner.trials = max((record.trial for record in own), default=-1) + 1
        plan.early.resume(order.network)
        self._identities = order.identities
        self._age_s, self._device_cores = order.age_s, order.device_cores
        self._shared.recalled = None if order.network is None else order.network.recalled
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
            case PartEnded(step=step, part=part, ended=ended):
                if (waiting := self._parts.get((step, part))) is not None and not waiting.done():
                    waiting.set_result(ended)
            case TagRecords(trials=trials, reason=reason):
                self._tag(await self._begun(), trials, reason)
            case Poisoned(candidates=candidates):
                (await self._begun()).poison.note(candidates)
            case Goodbye(reason=reason):
                log.info("the daemon goes, and comes back: %s", reason)
            case Stop(reason=reason):
                log.info("stopping: %s", reason)
                self.kill()
                os._exit(0)
            case _:
                raise WireError(f"a client does not answer {type(method).__name__}")
        return Done()

    def _start(self, order: StartStep) -> None:
        step = order.step
        if step.id in self._held:
            return  # already reported
        away = self._is_away(step.units)
        # on another machine than the daemon's these core numbers may not exist
        cores = () if away else cores_of(order.cores)
        lease = Lease(stage=step.stage, units=step.units, cores=cores, timeout_s=order.timeout_s, step=step.id)
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
            self.kill()
            os._exit(1)  # the daemon counts the step as lost, and starts a client that resumes from the records

    def _revoke(self, order: RevokeStep) -> None:
        """Kill the processes of a step. If the step does not end then, it hangs in this process: end the process."""
        lease = self._leases.get(order.step)
        if lease is None or self._runner is None:
            return
        log.warning("step %d is revoked: %s", order.step, order.reason)
        if self._is_away(lease.units):  # the daemon ends a helper that does not react
            return self._line.mention(StopElsewhere(step=order.step, reason=order.reason))
        self._runner.kill(lease)

        def check() -> None:
            if order.step in self._leases:
                said = "step %d does not end: its stage %s hangs in the backend's own code; ending this process"
                log.error(said, order.step, lease.stage)
                self.kill()
                os._exit(1)

        asyncio.get_running_loop().call_later(KILL_GRACE_S, check)

    # Steps --------------------------------------------------------------------------------------------------

    async def _run(self, order: StartStep, lease: Lease) -> None:
        """Run one step to its end and report the outcome."""
        step, plan, returns = order.step, await self._begun(), self._line.returns
        current, outcome, error = plan.started(step.task, step.stage), Outcome.DONE, ""
        kind = "" if current is None else current.kind
        started_at = asyncio.get_running_loop().time()
        watch = InterferenceMonitor(() if on_lane(lease) else lease.cores)
        away = self._away(order) if self._is_away(step.units) else None
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
                self._device_losses.pop(step.task, None)
                self._hindrances.over()
        except HelperLost as lost:
            outcome, error = Outcome.FAILED, str(lost)
            log.warning("step %d (%s) is lost: %s", step.id, step.stage, lost)
            await self._after_loss(plan, step.task, lost)
        except DeviceLost as lost:
            outcome, error = Outcome.FAILED, str(lost)
            log.warning("step %d (%s) has lost its device: %s", step.id, step.stage, lost)
            await self._after_device_loss(plan, step, current, lost, returns)
        except Exception as exc:  # boundary to plugin code: any exception is this step's failure
            outcome, error = Outcome.FAILED, await self._after_error(plan, step, exc)
        del self._leases[step.id]
        if self._backstop is not None:
            self._backstop.ended(step.id)
        worked_s = asyncio.get_running_loop().time() - started_at if away is None else away.worked_s
        if current is not None and not current.shared and (outcome is Outcome.DONE or away is None):
            plan.durations_s[kind].append(worked_s)
        note = watch.note if away is None else away.device
        end = EndStep(
            step=step.id, outcome=outcome, load=JobLoad(), error=error[:4_000], worked_s=worked_s, device=note
        )

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
                await self._tell_network(plan)
            case stages.SELECT:
                count = await self._in_thread(lease, lambda: runner.select(task, current, lease))
                plan.selected(task, count)
            case stages.BUILD:
                await self._in_thread(lease, lambda: runner.build(task, current, lease, away))
                if away is None:
                    await asyncio.to_thread(backend_boundary.check_space, self._workdir, current.built)
                self._useless_helpers = 0 if away is not None else self._useless_helpers
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
                    await self._hand_over(evaluation)
                last = BuildMeasurement.of(step.id, evaluation, disturbed=bool(watch.disturbed))
                result = next((timing for timing in evaluation.timings if timing.name == published), None)
                plan.evaluated(last, result)
                await self._tell_network(plan)
            case _:
                raise RequestError(f"no stage is named {stage!r}")

    async def _import(self, plan: JobPlan, lease: Lease) -> None:
        """Import the network, and collect what earlier jobs know about its tasks."""
        runner = self._runner
        assert runner is not None
        taken_in = await self._in_thread(lease, lambda: runner.take_in(lease))
        latency_goal.check(plan.spec, taken_in, peak_flops(max(1, self._device_cores)))
        taken = {record.task for record in self._records[self._borrowed :] if record.purpose is Purpose.KNOWN}
        network, known, hints = await self._shared.recall(plan.spec, taken_in, taken, runner.trials)
        if runner.learns:
            network = await self._shared.find_teachers(plan.spec, network)
        if runner.ranks and (rankers := await self._shared.rankers(plan.spec, network)):
            await self._in_thread(lease, lambda: runner.take_rankers(rankers))
        records, borrowed = [*self._on_this_device(plan, network), *known], self._borrowed
        teachers = self._shared.teachers
        await self._in_thread(lease, lambda: runner.make_tuners(network, lease, records, borrowed, teachers, hints))
        first = await self._first(plan.spec, network, lease, {*hints, *(record.task for record in records)})
        hints = {**hints, **first}
        plan.imported(network, records, borrowed, runner.comparable(), compares=runner.compares, hints=hints)
        await self._tell_network(plan)
        for record in known:
            self._tell_record(record)
        runner.trials += len(known)
        if runner.describes:
            await self._shared.describe(network, runner.program)

    def _on_this_device(self, plan: JobPlan, network: backend.Network) -> list[Record]:
        """All records that hold on this device model. Comparisons of an earlier client on another model are dropped and
        made again."""
        device = network.identity.device if network.identity is not None else ""
        if device and self._identities and self._identities[-1].identity.device not in ("", device):
            plan.early.forget()
        own = self._records[self._borrowed :]
        return [*self._records[: self._borrowed], *(moved(own, self._identities, device) if device else own)]

    async def _first(
        self, spec: JobSpec, network: backend.Network, lease: Lease, known: Collection[TaskIndex]
    ) -> dict[TaskIndex, tuple[bytes, ...]]:
        """The candidates that rankers expect to be the fastest, for a job without trials. `known`: tasks with known
        schedules, which need no ranker.

        A task that competes with a measured one gets its default, so that it is measured too.
        """
        runner = self._runner
        assert runner is not None
        if rounds.budget(network, spec.trials):
            return {}
        measured = {*known, *network.recalled.taken}
        unknown = [info for info in network.tasks if info.task not in measured]
        first = await self._in_thread(lease, lambda: runner.first(unknown, lease)) if runner.ranks else {}
        others = known_schedules.unmeasured_competitors(network, measured | first.keys())
        return first | {task: (default,) for task in others if (default := runner.default(task)) is not None}

    def _timed(self, code: str) -> Timed | None:
        """The known timing of object code; called from worker threads."""
        if (record := self._plan.result().timing(code)) is not None:
            known = record.detail if record.purpose is Purpose.KNOWN else ""
            return Timed(record.latency_s, known or f"trial {record.trial}")
        return self._shared.timings.get(code)

    async def _tell_network(self, plan: JobPlan) -> None:
        """Report the network, and its comparison with the baseline as far as known."""
        network, runner = plan.network, self._runner
        assert network is not None and runner is not None
        if self._useless_helpers < USELESS_HELPERS_MAX:
            network = msgspec.structs.replace(network, movable=runner.movable)
        network = msgspec.structs.replace(network, divisible=runner.divisible)
        if self._line.speaks(ARTIFACTS_SINCE):
            network = msgspec.structs.replace(network, comparison=plan.early.comparison)
        if self._line.speaks(MEASUREMENTS_SINCE):
            network = msgspec.structs.replace(network, measured=plan.early.measurements)
        else:
            network = msgspec.structs.replace(network, identity=None)
        if not self._line.speaks(CODE_SINCE):
            network = _without_code(network)
        if not self._line.speaks(KNOWN_SINCE):
            network = msgspec.structs.replace(network, recalled=backend.Recalled(), movable=(), divisible=())
        await self._line.ask(PlanNetwork(network=network, trials=plan.trials), Done)

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
            await self._hand_over(evaluation)
        else:
            log.info("an early build is not kept: %s", "; ".join(evaluation.notes) or "it is not clearly faster")
        after_s = asyncio.get_running_loop().time() - self._began_at
        plan.evaluated_early(build, evaluation.operators, kept=kept, after_s=after_s)
        await self._tell_network(plan)

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
            self._useless_helpers = 0 if away is not None else self._useless_helpers
        finally:
            await self._in_thread(lease, watch.end)
            disturbed = watch.disturbed if away is None else away.disturbed
            if disturbed and (trials := tuple(numbers)):
                self._tag(plan, trials, disturbed)
                self._tell(TagRecords(trials=trials, reason=disturbed))
        if current.steps == 1 and (files := self._builds.forget(current.built)):
            self._line.mention(ForgetMoved(files=files))

    # Steps of other hosts ---------------------------------------------------------------------------------------------

    def _is_away(self, units: Sequence[UnitName]) -> bool:
        """Whether the units of a step belong to another host, where a helper runs the step."""
        return host_of(units[0]) != self._host

    def _away(self, order: StartStep) -> AwayStep:
        return AwayStep(order.step.id, self._builds, self._run_elsewhere, sentinel=order.sentinel)

    async def _run_elsewhere(self, order: RunElsewhere) -> PartResult:
        """Have a helper run a part of a step. After a reconnect to the daemon, the request is repeated."""
        ended: asyncio.Future[PartResult] = asyncio.get_running_loop().create_future()
        self._parts[order.step, order.part] = ended
        try:
            while not ended.done():
                returns = self._line.returns
                await self._line.ask(order, Done)
                back = asyncio.ensure_future(self._line.wait_return(returns))
                waiting: set[asyncio.Future[PartResult] | asyncio.Future[None]] = {ended, back}
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                back.cancel()
            return ended.result()
        finally:
            del self._parts[order.step, order.part]

    def _bring(self, builts: Sequence[Built]) -> Sequence[Built]:
        """Download the artifacts of builds; called from worker threads."""
        loop = self._plan.get_loop()
        return asyncio.run_coroutine_threadsafe(self._builds.bring_all(builts), loop).result()

    # Boards -----------------------------------------------------------------------------------------------------------

    async def _on_board(self, lease: Lease) -> Lease:
        """The lease with the address of its board."""
        found = await self._line.ask(GetBoard(step=lease.step), BoardAccess)
        return msgspec.structs.replace(lease, board=backend.Board(found.host, found.port, found.key))

    async def _after_device_loss(
        self, plan: JobPlan, step: Step, current: Round | None, lost: DeviceLost, returns: int
    ) -> None:
        """Repeat the stage without the candidates that were measured. A candidate that ran during two losses is blamed.
        If the client has reconnected meanwhile, the restart of the daemon lost the device, and no candidate is blamed.
        If this process lost the device's cores, it waits a little: the daemon notices that too, and gives the device no
        steps."""
        lease = self._leases.get(step.id)
        if lease is not None and machine.forbidden(lease.cores):
            await asyncio.sleep(CORES_TAKEN_PAUSE_S)
            plan.lost(step.task)
            return
        try:
            why = (await self._line.ask(GetBoard(step=step.id), BoardAccess)).trouble or str(lost)
        except RequestError as error:  # the step was revoked, or the daemon was restarted
            why, returns = str(error), -1
        if self._runner is not None and current is not None and self._line.returns == returns:
            self._device_losses[step.task] += 1
            if lost.candidate is not None:
                self._runner.blame(step.task, current, lost.candidate, step.units[0], why)
            if self._device_losses[step.task] >= DEVICE_LOSSES_MAX:
                self._after_failure(plan, step.task, step.stage, StepFailed(f"{lost}: {why}"))
                return
        plan.lost(step.task)

    async def _after_error(self, plan: JobPlan, step: Step, error: Exception) -> str:
        """Words for the end of a step that failed. The stage is repeated after a pause if the job is not to blame."""
        if not (why := self._hindrances.cause(error)):
            log.warning("step %d (%s) failed", step.id, step.stage, exc_info=error)
            self._after_failure(plan, step.task, step.stage, error)
            return f"{type(error).__name__}: {error}{_place(error)}"
        pause_s = self._hindrances.pause_s()
        log.warning("step %d (%s) is repeated in %.0f s: %s", step.id, step.stage, pause_s, why)
        await asyncio.sleep(pause_s)
        plan.lost(step.task)
        return f"it is repeated: {why}"

    async def _after_loss(self, plan: JobPlan, task: TaskIndex, lost: HelperLost) -> None:
        """Repeat the stage of a lost helper, without blaming the task. After several helpers in a row without any work
        done, stages stay on this host."""
        self._useless_helpers += lost.useless
        if lost.useless and self._useless_helpers == USELESS_HELPERS_MAX:
            log.error("all stages stay on this host: %d helpers in a row did nothing", USELESS_HELPERS_MAX)
            await self._tell_network(plan)
        plan.lost(task)

    def _tag(self, plan: JobPlan, trials: Iterable[int], reason: str) -> None:
        tagged = plan.tagged(trials, reason)
        if tagged:
            log.info("%d records were disturbed: %s", len(tagged), reason)

    def _after_failure(self, plan: JobPlan, task: int, stage: str, error: Exception) -> None:
        said = _in_words(error)
        unfit = isinstance(error, TargetUnfit)
        if task != NETWORK_TASK and not unfit:
            plan.failed(task, plan.current(task).results, f"{stage}: {said}"[:2_000])
        elif plan.optional and not unfit:
            plan.gave_up_early()
        else:
            code, message = ("job_failed", f"{stage} failed: {said}")
            if isinstance(error, RequestError):
                code, message = error.code, said
            plan.broken(JobFailure(code, message[:4_000]))

    async def _in_thread(self, lease: Lease, work: Callable[[], T]) -> T:
        return await in_thread(self._pool, lease, work)

    def _keep(self, record: Record) -> None:
        """Send a record; called from worker threads for each trial."""
        self._plan.get_loop().call_soon_threadsafe(self._note, record)

    def _note(self, record: Record) -> None:
        self._device_losses.pop(record.task, None)
        self._plan.result().recorded(record)
        self._tell_record(record)

    def _tell_record(self, record: Record) -> None:
        if not self._line.speaks(CODE_SINCE):
            record = msgspec.structs.replace(record, code="")
        self._tell(AddRecord(record=record))

    def _tell(self, method: AddRecord | TagRecords) -> None:
        if not self._line.tell(method):
            log.error("the daemon acknowledges nothing, and there is too much to keep; ending")
            self.kill()
            os._exit(1)

    async def _hand_over(self, evaluation: backend.Evaluation) -> None:
        """Upload the result files, then name all of them in one message, so that no user fetches files of two
        builds."""
        text = msgspec.json.format(msgspec.json.encode(evaluation), indent=2)
        (self._outdir / EVALUATION).write_bytes(text + b"\n")
        files = []
        for path in sorted(p for p in self._outdir.iterdir() if p.is_file()):
            digest = await self._line.over(partial(blob_transfer.upload, path=path))
            files.append(ResultFile(path.name, digest))
        if self._line.speaks(ARTIFACTS_SINCE):
            await self._line.ask(AddArtifacts(files=tuple(files)), Done)
            return
        for file in files:
            await self._line.ask(AddArtifact(name=file.name, sha256=file.sha256), Done)


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


def _without_code(network: backend.Network) -> backend.Network:
    """The network for a daemon that does not know templates and measurement methods."""
    identity = network.identity
    return msgspec.structs.replace(
        network,
        tasks=tuple(msgspec.structs.replace(info, template="") for info in network.tasks),
        identity=identity and msgspec.structs.replace(identity, measurement=""),
    )
