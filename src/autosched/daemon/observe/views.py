"""Views of jobs and units in the types of the protocol, computed on request."""

import difflib
import math
from collections.abc import Callable
from statistics import median
from typing import NamedTuple

from autosched.core.leases import current_resources
from autosched.core.lifecycles import CutOff
from autosched.core.state import Job, Slot, State, Task
from autosched.daemon.boards.program_jobs import BACKEND as PROGRAM_BACKEND
from autosched.daemon.devices.device_monitor import Health
from autosched.daemon.devices.quarantine import is_kept_free, is_quarantined
from autosched.daemon.jobs.progress import JobProgress
from autosched.daemon.timeline import Timeline
from autosched.errors import RequestError
from autosched.model import NETWORK_TASK, JobState, Step, UnitName, device_kind
from autosched.protocol import Calibration, GoneBoard, JobView, ListJobs, LoadView, TaskLoadView, TaskView, UnitView
from autosched.stages import STAGES

STEPS_SHOWN = 2
"""Maximum number of steps in a job's activity."""
NAME_CHARS = 32
"""Maximum number of characters of a task's name; those of fused operators have hundreds."""
ME, ACTIVE = "me", "active"
WORDS = (ACTIVE, "waiting", "held", "paused", *JobState, *STAGES)
"""Words for the state or activity of a job, without the stages of foreign clients."""
LAST_ERROR_CHARS = 500
"""Maximum number of characters of a job's last error."""


def job_view(state: State, job: Job, progress: JobProgress, now: float, *, whole: bool) -> JobView:
    """View of one job. `whole`: with its tasks, the operators that are not tuned, and its specification."""
    network, status = progress.network, progress.status
    return JobView(
        job=job.id,
        name=job.spec.name,
        target=job.spec.target,
        device=job.spec.device,
        backend=job.spec.backend,
        state=job.state.value,
        reason="".join(why := reason(state, job, progress)),
        detail=why.rest,
        trials=progress.trials,
        trials_total=job.spec.trials if progress.trials_total is None else progress.trials_total,
        failed=progress.failed,
        failures=dict(progress.failures),
        disturbed_records=len(progress.disturbed),
        records=progress.records,
        failed_steps=job.failed_steps,
        last_error=job.last_error[:LAST_ERROR_CHARS],
        estimate_s=progress.estimate_s,
        first_estimate_s=progress.first_estimate_s,
        eta_s=None if job.state.ended or job.held or state.paused else progress.eta_s(now),
        submitted_at=job.submitted_at,
        ended_at=None if job.end is None else job.end.at,
        now=now,
        version=progress.version,
        failure=job.failure,
        output=job.spec.output,
        tasks=tuple(_task_views(state, job, progress, now)) if whole else (),
        skipped=tuple((s.name, s.reason) for s in network.skipped) if whole and network is not None else (),
        spec=job.spec if whole else None,
        priority=job.spec.priority,
        deadline_at=None if job.spec.deadline_s is None else job.submitted_at + job.spec.deadline_s,
        owner=job.owner,
        held=job.held,
        doing=doing(state, job),
        labels=job.spec.labels,
        comparison=status.comparison,
        result_s=status.measured.result_s,
        goal=status.measured.goal,
        identities=tuple(progress.identities) if whole else (),
        builds=status.measured.builds if whole else (),
    )


def load_view(state: State, job: Job, progress: JobProgress) -> LoadView:
    """Load-awareness of each task of a job, with the resources that it holds."""

    def of(task: Task) -> TaskLoadView:
        known, step = progress.tasks.get(task.index), state.steps.get(task.step) if task.step is not None else None
        load = task.load
        # A load that was reported before the running or last step began does not describe the next step.
        ahead = task.waiting is not None or (step is not None and not load.stage_done)
        return TaskLoadView(
            task=task.index,
            name=known.info.name if known is not None else job.spec.name,
            stage_done=step is None and load.stage_done,
            job_done=load.complete or job.state.ended,
            resources_now=current_resources(state, task),
            resources_next=state.pools_of(state.jobs[task.job], load.resources_next) if ahead else (),
            stage=step.stage if step is not None else "",
            stage_next=load.stage_next if ahead else "",
        )

    return LoadView(job.id, tuple(of(task) for _, task in sorted(job.tasks.items())))


def asked_for(state: State, method: ListJobs, me: str) -> Callable[[Job], bool]:
    """The condition by which a list includes jobs. `me`: the user. Raises RequestError for an unknown state."""
    owner = me if method.owner == ME else method.owner
    if method.state and method.state not in WORDS and method.state not in {step.stage for step in state.steps.values()}:
        near = difflib.get_close_matches(method.state, WORDS, 1)
        hint = f"Did you mean {near[0]}? " if near else ""
        raise RequestError(f"no job is or does {method.state!r}. {hint}There are: {', '.join(WORDS)}")

    def wanted(job: Job) -> bool:
        return (
            (method.before is None or job.id < method.before)
            and (owner in ("", job.owner) or (method.owner == ME and not job.owner))
            and method.name in ("", job.spec.name)
            and method.labels.items() <= job.spec.labels.items()
            and (not method.state or _is(state, job, method.state))
        )

    return wanted


def _is(state: State, job: Job, word: str) -> bool:
    if word == ACTIVE:
        return not job.state.ended
    return word == job.state.value or word == doing(state, job)


def doing(state: State, job: Job) -> str:
    """The activity of a job, in one word."""
    if job.state.ended or job.state is JobState.STARTING:
        return job.state.value
    if job.steps:
        return state.steps[next(iter(job.steps))].stage or job.state.value
    return "held" if job.held else "paused" if state.paused else "waiting"


def _task_views(state: State, job: Job, progress: JobProgress, now: float) -> list[TaskView]:
    running = {state.steps[step].task: state.steps[step] for step in job.steps}
    views = []
    for index, task in progress.tasks.items():
        step = running.get(index)
        views.append(
            TaskView(
                task=index,
                name=task.info.name,
                shape=task.info.shape,
                weight=task.info.weight,
                flops=task.info.flops,
                trials=task.trials,
                failed=task.failed,
                best_s=task.best_s,
                first_s=task.first_s,
                default_s=task.default_s,
                groups=task.info.groups,
                untuned_s=progress.untuned_s.get(index),
                came_from=progress.came_from(index),
                stage="" if step is None else step.stage,
                left_s=None if step is None else max(0.0, step.deadline_at - now),
            )
        )
    return views


class Reason(NamedTuple):
    """Activity of a job or the cause of its wait: a sentence in two parts."""

    stated: str
    """Beginning of the sentence, the verb of `doing`: "building "; may be empty."""
    rest: str


REASON_MAX = 200
"""Maximum number of characters of a cause that others wrote."""


def reason(state: State, job: Job, progress: JobProgress) -> Reason:
    """Activity of a job or the cause of its wait, in a few words."""
    if job.state.ended:
        ended = job.failure.message.partition("\n")[0][:200] if job.failure is not None else job.state.value
        return Reason("", f"{ended} (still stopping)" if job.steps else ended)
    if job.state is JobState.STARTING:
        if job.trouble:
            return Reason("", f"its client starts again: {job.trouble}"[:REASON_MAX])
        client = ("waits for ", "its client, which its user starts") if job.spec.external else ("", "its client starts")
        return Reason(*client)
    if (job.held or state.paused) and not job.steps:
        return Reason("", f"held: {job.held}" if job.held else f"all jobs wait: {state.paused}")
    cut_off = f"its client is cut off: {job.client.reason}" if isinstance(job.client, CutOff) else ""
    if job.steps:
        parts = [_doing(state, step, progress) for step in list(job.steps)[:STEPS_SHOWN]]
        more = [f"{len(job.steps) - len(parts)} more"] if len(job.steps) > len(parts) else []
        words = ["".join(part) for part in parts]
        if cut_off:
            return Reason("", "; ".join([cut_off, *words, *more]))
        return Reason(parts[0].stated, "; ".join([parts[0].rest, *words[1:], *more]))
    waiting = [(it.ticket, task) for task in job.tasks.values() if (it := task.waiting) is not None]
    if not waiting:
        of_program = job.spec.backend == PROGRAM_BACKEND
        return Reason("", cut_off or ("asks for no board" if of_program else "its client has nothing to run"))
    return Reason("waits for ", _waits(state, min(waiting)[1]))


def _doing(state: State, step_id: int, progress: JobProgress) -> Reason:
    step = state.steps[step_id]
    task = progress.tasks.get(step.task)
    name = "the network" if step.task == NETWORK_TASK else task.info.name if task is not None else f"task {step.task}"
    name = name if len(name) <= NAME_CHARS else f"{name[: NAME_CHARS - 1]}…"
    verb = STAGES[step.stage].doing if step.stage in STAGES else f"{step.stage or 'step'} of"
    where = f"{name} on {', '.join(step.units)}"
    if step_id in state.revoked:
        return Reason("", f"stopping: {verb} {where}")
    return Reason(f"{verb} ", where) if step.stage in STAGES else Reason("", f"{verb} {where}")


def _waits(state: State, task: Task) -> str:
    """The resource for which a task waits."""
    for pool in task.queued_in:
        names = [unit.name for unit in state.queues[pool].pool.units]
        if names and all(name in state.drained for name in names):
            why = state.drained[names[0]].reason
            why = why if is_kept_free(state, names[0]) else f"drained: {why}" if why else "drained"
            return f"{pool}: {names[0]} is {why}" + (f" and {len(names) - 1} more" if len(names) > 1 else "")
        if all(state.slots[name].away for name in names):
            boards = [state.boards[name].gone for name in names if name in state.boards]
            return f"{pool}: {names[0]} is gone: {boards[0]}" if boards else f"{pool}: its host is away"
        holders = [state.slots[name].holder for name in names]
        jobs = dict.fromkeys(state.steps[holder].job for holder in holders if holder is not None)
        if len([holder for holder in holders if holder is not None]) == len(holders):
            others = [job for job in jobs if job != task.job]
            who = f"job {others[0]}" if others else "another of its tasks"
            return f"{pool}, held by {who}" + (f" and {len(others) - 1} more" if len(others) > 1 else "")
    return f"its turn on {' and '.join(task.queued_in)}"


def calibration(state: State) -> Calibration | None:
    """Accuracy of the estimates; None before the first one can be judged."""
    known = state.estimates.calibration()
    errors = [abs(math.log(ratio)) for ratios in state.estimates.ratios.values() for ratio in ratios.recent]
    if known.mape is None or not errors:
        return None
    typical = math.exp(median(errors))  # a single tiny step would dominate the mean
    return Calibration(known.steps, known.mape, known.coverage_p90, typical)


def unit_views(
    state: State, timeline: Timeline, now: float, health: Callable[[Slot, float], Health] = lambda slot, now: Health()
) -> tuple[UnitView, ...]:
    """Views of all lanes and devices, in the order of their pools, without boards that are gone."""
    views = []
    for name, slot in state.slots.items():
        step = state.steps.get(slot.holder) if slot.holder is not None else None
        if step is None and name in state.boards and state.boards[name].gone:
            continue
        pools = tuple(pool for pool, _ in slot.places)
        found = health(slot, now)
        views.append(
            UnitView(
                unit=name,
                pools=pools,
                cores=slot.unit.cores,
                state=_standing(state, name, step),
                job=step.job if step is not None else None,
                task=step.task if step is not None else None,
                stage=step.stage if step is not None else "",
                held_s=now - step.started_at if step is not None else 0.0,
                left_s=max(0.0, step.deadline_at - now) if step is not None else 0.0,
                waiting=sum(state.queues[pool].waiting for pool in pools),
                busy_ratio=timeline.busy_ratio(name, now),
                health=found.words,
                condition=found.condition,
                drained=state.drained[name].reason if name in state.drained else "",
                quarantined=is_quarantined(state, name),
                eta_s=_eta_s(state, step, now) if step is not None else None,
                accelerator=slot.unit.accelerator,
                host=slot.unit.host,
            )
        )
    return tuple(views)


def gone_boards(state: State, now: float) -> tuple[GoneBoard, ...]:
    """Registered boards that are gone."""
    return tuple(
        GoneBoard(name, device_kind(board.pool), board.gone, now - board.gone_at)
        for name, board in state.boards.items()
        if board.gone
    )


def _eta_s(state: State, step: Step, now: float) -> float | None:
    """Expected seconds until a step ends; 0 for a step that takes longer than expected."""
    expected_s = state.estimates.forecasts.get(step.id, (None,))[0]
    return None if expected_s is None else max(0.0, step.started_at + expected_s - now)


def _standing(state: State, name: UnitName, step: Step | None) -> str:
    if step is None:
        if is_quarantined(state, name):
            return "quarantined"
        return "drained" if name in state.drained else "away" if state.slots[name].away else "free"
    return "stopping" if _stopping(state, step.id) else "busy"


def _stopping(state: State, step: int) -> bool:
    return step in state.revoked or state.jobs[state.steps[step].job].state.ended
