"""Data of the page in JSON: everything at first, then changes only."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from itertools import islice, takewhile

import msgspec
from msgspec import Struct

from autosched.core.state import Job
from autosched.daemon.event_stream import recent_events
from autosched.daemon.event_stream.daemon_events import DaemonEvent, StepEnded, StepStarted
from autosched.daemon.event_stream.event_sentences import sentence
from autosched.daemon.event_stream.stream import EVERYTHING, Subscription
from autosched.daemon.jobs.latency_curves import Point
from autosched.daemon.observe.usage import Cause, Spell
from autosched.daemon.observe.views import calibration, job_view, unit_views
from autosched.daemon.web.web_services import WebServices
from autosched.model import COMBINATION, EXPERIMENT, EXPERIMENT_JOBS, JobId, JobState, StepId, UnitName
from autosched.network_status import expected_s
from autosched.process.process_tree import resident_bytes
from autosched.protocol import Span
from autosched.version import __version__

ENDED_SHOWN = 50
"""Number of ended jobs in the first data; older ones are requested."""
ACTIVE_SHOWN = 500
SPANS_SHOWN = 2_000
ROWS_PER_PULSE = 60
STEPS_PER_PULSE = 200
SPELLS_PER_PULSE = 100
TOLD_PER_PULSE = 20
"""Maximum number of events in a pulse. With rows of 300 bytes and steps of 100, a pulse stays below 50 kB."""
ROWS_PER_TURN = 10
WAITING_MAX = 4_000
EXPERIMENTS_SHOWN = 6
"""Maximum number of experiments on the page, the latest ones."""
Told = tuple[float, int, str]
"""Unix time, level and words of an event."""


class Row(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job in the table."""

    job: JobId
    name: str
    backend: str
    device: str
    state: str
    doing: str
    reason: str
    trials: int
    total: int | None
    failed: int = 0
    disturbed: int = 0
    best_s: float | None = None
    first_s: float | None = None
    eta_s: float | None = None
    submitted_at: float
    ended_at: float | None = None
    priority: int = 0
    experiment: str = ""


class Bar(Struct, frozen=True, array_like=True):
    """A step in the Gantt chart."""

    step: StepId
    job: JobId
    task: int
    stage: str
    units: tuple[UnitName, ...]
    started_at: float
    ended_at: float | None
    outcome: str
    worked_s: float | None = None

    @classmethod
    def of(cls, span: Span) -> "Bar":
        """The part of a span that the page shows."""
        return cls(
            span.step, span.job, span.task, span.stage, span.units, round(span.started_at, 3),
            None if span.ended_at is None else round(span.ended_at, 3), span.outcome, span.worked_s,
        )  # fmt: skip


class Card(Struct, frozen=True, omit_defaults=True):
    """A unit."""

    unit: UnitName
    pools: tuple[str, ...]
    cores: tuple[int, ...]
    state: str
    job: JobId | None = None
    stage: str = ""
    since: float | None = None
    health: str = ""
    noise: tuple[float, float] | None = None
    drifting: bool = False
    drained: str = ""
    idle: tuple[float, Cause] | None = None
    """Since when the unit is idle, and why."""


class Experiment(Struct, frozen=True):
    """Progress of an experiment."""

    name: str
    jobs: int
    """Number of its jobs, submitted or not."""
    active: int
    done: int
    failed: int


class Lab(Struct, frozen=True):
    """The head of the page."""

    version: str
    policy: str
    goal: str
    rule: str
    active: int
    jobs: int
    starting: int
    uptime_s: float
    rss_bytes: int
    warnings: tuple[str, ...]
    queues: dict[str, int]
    typical: float | None
    """Median factor by which recent estimates were wrong."""
    experiments: tuple[Experiment, ...]
    """The latest experiments."""


class OverviewPage:
    """Content of the page. Follows events only while it is `open`, which it is while it has a viewer."""

    def __init__(self, shown: WebServices) -> None:
        self._shown = shown
        self._runtime, self._progress = shown.services.runtime, shown.services.progress
        self._reader: Subscription | None = None
        self._dirty: dict[JobId, None] = {}
        self._cards: dict[UnitName, Card] = {}
        self._spells_until: dict[UnitName, float] = {}
        self._curves_until: dict[JobId, float] = {}
        self._experiments: dict[str, dict[str, Job]] = {}
        """The latest job of each combination of each experiment, as far as known."""
        self._looked_until: JobId = 0

    def open(self) -> None:
        """Count a viewer, and follow events from the first one on."""
        self._reader = self._runtime.stream.subscribe(EVERYTHING, WAITING_MAX)
        now = self._runtime.clock()
        self._spells_until = dict.fromkeys(self._runtime.state.slots, now)
        self._curves_until = {job: points[-1][0] for job, points in self._shown.curves.of.items() if points}
        self._cards = {}

    def close(self) -> None:
        """Stop following events: the last viewer has left."""
        if self._reader is not None:
            self._reader.close()
        self._reader = None
        self._dirty.clear()

    # Everything -------------------------------------------------------------------------------------------------------

    async def everything(self, role: str) -> bytes:
        """The first data of the page."""
        state = self._runtime.state
        active = list(islice(reversed(state.active), ACTIVE_SHOWN))
        ended = (job for job in reversed(state.jobs) if job not in state.active)
        chosen = [*active, *islice(ended, ENDED_SHOWN)]
        now = self._runtime.clock()
        curves = {str(job): self._shown.curves.of[job] for job in active if job in self._shown.curves.of}
        body = {
            "now": round(now, 3),
            "role": role,
            "lab": self._lab(),
            "units": list(self._units().values()),
            "jobs": await self._rows(chosen),
            "curves": curves,
            "told": [_told(event) for event in self._shown.recent.last],
        }
        return msgspec.json.encode(body)

    async def past(self) -> bytes:
        """The last steps and idle periods, and from when on each list is complete."""
        store, timeline = self._shown.services.store, self._runtime.timeline
        first = max(0, self._runtime.state.last_step - SPANS_SHOWN)
        spans, more = await store.spans(first)
        while more:
            some, more = await store.spans(spans[-1].step)
            spans += some
        bars = {span.step: Bar.of(span) for span in (*spans, *timeline.running.values())}
        began_at = timeline.began_at
        since = spans[0].started_at if first and spans else min((began_at, *(span.started_at for span in spans[:1])))
        usage = self._shown.usage
        spells = [spell for kept in usage.spells.values() for spell in kept if spell.ended_at > since]
        body = {
            "since": since,
            "steps": list(bars.values()),
            "idle": [_rounded(spell) for spell in spells],
            "began_at": round(began_at, 3),
            "idle_since": round(max(began_at, usage.remembered_since()), 3),
        }
        return msgspec.json.encode(body)

    async def older(self, before: JobId, limit: int) -> bytes:
        """Jobs with a smaller number, the latest first."""
        jobs = self._runtime.state.jobs
        chosen = islice((job for job in reversed(jobs) if job < before), limit)
        return msgspec.json.encode({"jobs": await self._rows(list(chosen))})

    # What changed -----------------------------------------------------------------------------------------------------

    async def pulse(self) -> bytes:
        """Changes since the last call."""
        assert self._reader is not None
        now = self._runtime.clock()
        bars: dict[StepId, Bar] = {}
        told: list[Told] = []
        missed = 0
        for event in self._reader.take():
            if (job := event.job) is not None and job in self._runtime.state.jobs:
                self._dirty[job] = None
            self._note_step(event, bars)
            if type(event.what) in recent_events.TOLD:
                told.append(_told(event))
            missed += getattr(event.what, "count", 0) if event.name == "Dropped" else 0
        missed += max(0, len(bars) - STEPS_PER_PULSE)
        chosen = list(islice(self._dirty, ROWS_PER_PULSE))
        for job in chosen:
            del self._dirty[job]
        cards, spells = self._units(), self._new_spells()
        body = {
            "now": round(now, 3),
            "lab": self._lab(),
            "units": [card for unit, card in cards.items() if self._cards.get(unit) != card],
            "jobs": await self._rows(chosen),
            "curves": self._new_points(chosen),
            "steps": list(bars.values())[-STEPS_PER_PULSE:],
            "idle": spells[-SPELLS_PER_PULSE:],
            "missed_idle": max(0, len(spells) - SPELLS_PER_PULSE),
            "told": told[-TOLD_PER_PULSE:],
            "missed": missed,
            "running": list(self._runtime.state.steps) if missed else (),
        }
        self._cards = cards
        return msgspec.json.encode({name: value for name, value in body.items() if value})

    def _note_step(self, event: DaemonEvent, bars: dict[StepId, Bar]) -> None:
        match event.what:
            case StepStarted(step=step):
                if (span := self._runtime.timeline.running.get(step)) is not None:
                    bars[step] = Bar.of(span)
            case StepEnded() as over:
                began_at = round(event.at - over.held_s, 3)
                bars[over.step] = Bar(
                    over.step, over.job, over.task, over.stage, over.units, began_at, round(event.at, 3),
                    over.outcome, over.worked_s,
                )  # fmt: skip

    def _new_spells(self) -> list[Spell]:
        found: list[Spell] = []
        for unit, kept in self._shown.usage.spells.items():
            until = self._spells_until.get(unit, 0.0)
            for spell in reversed(kept):
                if spell.ended_at <= until:
                    break
                found.append(_rounded(spell))
            if kept:
                self._spells_until[unit] = kept[-1].ended_at
        return sorted(found, key=lambda spell: spell.ended_at)

    def _new_points(self, jobs: list[JobId]) -> dict[str, list[Point]]:
        found: dict[str, list[Point]] = {}
        for job in jobs:
            points, until = self._shown.curves.of.get(job, []), self._curves_until.get(job, -1.0)
            if new := [point for point in points if point[0] > until]:
                found[str(job)] = new
                self._curves_until[job] = new[-1][0]
        return found

    # Parts ------------------------------------------------------------------------------------------------------------

    async def _rows(self, jobs: list[JobId]) -> list[Row]:
        rows = []
        for number, job in enumerate(jobs, 1):
            if number % ROWS_PER_TURN == 0:
                await asyncio.sleep(0)  # clients of running jobs must not wait for viewers of many
            rows.append(self._row(self._runtime.state.jobs[job]))
        return rows

    def _row(self, job: Job) -> Row:
        runtime = self._runtime
        view = job_view(runtime.state, job, self._progress.get(job.id), runtime.clock(), whole=False)
        return Row(
            job=view.job, name=view.name, backend=view.backend, device=view.device, state=view.state,
            doing=view.doing, reason=view.reason, trials=view.trials, total=view.trials_total, failed=view.failed,
            disturbed=view.disturbed_records, best_s=view.whole_s,
            first_s=expected_s(view.first_estimate_s, view.comparison),
            eta_s=None if view.eta_s is None else round(view.eta_s, 1), submitted_at=round(view.submitted_at, 3),
            ended_at=None if view.ended_at is None else round(view.ended_at, 3), priority=view.priority,
            experiment=job.spec.labels.get(EXPERIMENT, ""),
        )  # fmt: skip

    def _units(self) -> dict[UnitName, Card]:
        runtime, monitor = self._runtime, self._shown.services.monitor
        views = unit_views(runtime.state, runtime.timeline, runtime.clock(), monitor.health)
        cards = {}
        idle = {spell.unit: (round(spell.began_at, 3), spell.cause) for spell in self._shown.usage.under_way(0.0)}
        for view in views:
            watch = monitor.watched(view.unit)
            slot = runtime.state.slots[view.unit]
            step = runtime.state.steps.get(slot.holder) if slot.holder is not None else None
            known = watch is not None and watch.core.baseline_s is not None
            cards[view.unit] = Card(
                view.unit, view.pools, view.cores, view.state, view.job, view.stage,
                None if step is None else round(step.started_at, 3), view.health,
                (round(watch.core.noise, 4), round(watch.memory.noise, 4)) if watch is not None and known else None,
                watch is not None and watch.drifting_since is not None, view.drained, idle.get(view.unit),
            )  # fmt: skip
        return cards

    def _lab(self) -> Lab:
        runtime, services = self._runtime, self._shown.services
        state, known = runtime.state, calibration(runtime.state)
        return Lab(
            version=__version__,
            policy=runtime.scheduler.policy.name,
            goal=state.goal.value,
            rule=state.rule,
            active=len(state.active),
            jobs=len(state.jobs),
            starting=len(state.starting),
            uptime_s=round(runtime.clock() - runtime.timeline.began_at, 1),
            rss_bytes=resident_bytes("self"),
            warnings=services.warnings_now,
            queues={name: queue.waiting for name, queue in state.queues.items()},
            typical=round(known.typical, 2) if known is not None else None,
            experiments=self._latest_experiments(),
        )

    def _latest_experiments(self) -> tuple[Experiment, ...]:
        jobs = self._runtime.state.jobs
        new = list(takewhile(lambda job: job > self._looked_until, reversed(jobs)))
        for job in reversed(new):
            labels = jobs[job].spec.labels
            if (name := labels.get(EXPERIMENT)) is not None:
                found = self._experiments.pop(name, {})
                combination = labels.get(COMBINATION, "")
                found.pop(combination, None)
                found[combination] = jobs[job]
                self._experiments[name] = found  # later jobs come later in both lists
            self._looked_until = job
        latest = islice(reversed(self._experiments.items()), EXPERIMENTS_SHOWN)
        return tuple(_experiment(name, list(of_it.values())) for name, of_it in latest)


def _experiment(name: str, jobs: Sequence[Job]) -> Experiment:
    """Progress of an experiment. `jobs`: the latest job of each combination, in the order of submission."""
    counts = Counter(job.state for job in jobs)
    text = jobs[-1].spec.labels.get(EXPERIMENT_JOBS, "")
    active = sum(not job.state.ended for job in jobs)
    total = max(len(jobs), int(text) if text.isdecimal() else 0)
    return Experiment(name, total, active, counts[JobState.DONE], counts[JobState.FAILED])


def _told(event: DaemonEvent) -> Told:
    return round(event.wall_s, 3), event.level, sentence(event)[:200]


def _rounded(spell: Spell) -> Spell:
    return Spell(spell.unit, round(spell.began_at, 3), round(spell.ended_at, 3), spell.cause)
