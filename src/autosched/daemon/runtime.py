"""The loop around the core: it decides on an event, both are journalled, then the actions are performed.

The journal contains decisions as well as events, so that a replay asks no policy. The loop takes the next event before
the disk has written the last one: several events share a commit, and are performed and answered after it, in order. The
state is therefore ahead of the disk for a moment. A view may then show a change that a crash would undo, but no such
change was answered, and none of its actions has begun.
"""

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Protocol

from msgspec import Struct

from autosched.core.actions import Action, Decision, EndJob, ReplacePolicy, StartStep
from autosched.core.events import (
    DeadlineReached,
    Event,
    JobPruned,
    PolicyChosen,
    ResourcesDeclared,
    RuleChosen,
    StepEnded,
)
from autosched.core.policies.policy import INTERLEAVED, POLICIES
from autosched.core.scheduler import Scheduler
from autosched.daemon.event_stream import daemon_events
from autosched.daemon.event_stream.stream import Stream
from autosched.daemon.policy_time_limit import PolicyTimeLimit
from autosched.daemon.storage.batched_statements import Statement
from autosched.daemon.storage.job_store import span_rows
from autosched.daemon.storage.journal import WAYS_OUT, Journal
from autosched.daemon.storage.projection_status import ProjectionStatus
from autosched.daemon.timeline import Timeline
from autosched.errors import AutoschedError, Damaged
from autosched.model import JobId, Step
from autosched.protocol import Span
from autosched.records.statistics import p99

log = logging.getLogger(__name__)

BY = "the daemon"
"""Author of changes that the daemon makes by itself."""

HISTORY = 40
"""Number of events that are logged when an invariant breaks."""
TIMER_SLACK_S = 0.002
"""Seconds by which the timer is later than the deadline."""
AHEAD_MAX = 256
"""Maximum decisions that wait for the disk; then further events wait, too."""
DURABLE_WAIT_S = 1.0
"""Maximum seconds that an answer waits for the disk. A commit takes milliseconds."""
AT_ONCE = 16
"""Maximum decisions in one turn of the event loop."""
DECISIONS_KEPT = 1_000
"""Number of decisions whose durations are kept."""
_tasks: set[asyncio.Task[Any]] = set()


def spawn(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """Run a coroutine as a task. Keeps a reference to the task, and logs its crash."""
    task = asyncio.get_running_loop().create_task(work, name=name)
    _tasks.add(task)
    task.add_done_callback(_report)
    return task


def _report(task: asyncio.Task[None]) -> None:
    _tasks.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("%s crashed", task.get_name(), exc_info=error)


class Performer(Protocol):
    """Performs the actions of the core. Neither method may block."""

    def perform(self, action: Action) -> None:
        """Begin to perform an action."""

    def changed(self, job: JobId) -> None:
        """Note that a job has changed."""


Remember = Callable[[Sequence[Span]], tuple[Statement, ...]]


class _Entry(Struct, eq=False):
    """A posted event and its result."""

    prepare: Callable[[], Event | None]
    done: asyncio.Future[None] | None = None
    also: tuple[Statement, ...] = ()
    """Statements to write together with the event."""
    refused: AutoschedError | None = None
    now: float = 0.0
    decision: Decision | None = None
    """None: there is no event."""
    ended: Sequence[Span] = ()
    stored: asyncio.Future[None] | None = None
    """Set when the event is durable; None if there is nothing to store."""


class Runtime:
    """The scheduler on a real clock."""

    def __init__(self, journal: Journal, scheduler: Scheduler, budget: PolicyTimeLimit | None = None) -> None:
        self.journal = journal
        self.scheduler = scheduler
        self.state = scheduler.state
        """State of the core, read-only."""
        self.timeline = Timeline()
        self.stream = Stream(self.clock)
        self._performer: Performer
        self._remember: Remember
        self.records = ProjectionStatus()
        """Progress of the record store behind the journal."""
        self.replaced = ""
        """Why the chosen policy was replaced; empty while it decides."""
        self.sharing: dict[JobId, None] = {}
        """Jobs with a step that was started under a policy that shares units."""
        self._budget = budget
        self._search: Iterator[RuleChosen | None] | None = None
        """The search for a better rule that goes on."""
        self._wake_at: float | None = None
        """Time of the next DeadlineReached, by the last decision."""
        self._loop = asyncio.get_running_loop()
        self._inbox: deque[_Entry] = deque()
        self._news = asyncio.Event()
        self._ahead: deque[_Entry] = deque()
        """Entries that are decided and not durable yet. They are performed and answered in order."""
        self._fault: BaseException | None = None
        self._history: deque[tuple[float, Event]] = deque(maxlen=HISTORY)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self._halted = False
        self.decisions = 0
        self._decided: deque[float] = deque(maxlen=DECISIONS_KEPT)
        self._began_at = time.monotonic()
        self._epoch_s = 0.0

    def replay(self, after: int = 0) -> int:
        """Replay the events after event `after`, without performing actions. Returns their number. Raises Damaged."""
        count = 0
        for now, event, started in self.journal.replay(after):
            try:
                self._decide(now, event, started)
            except Exception as error:
                what = f"row {self.journal.seq} of {self.journal.path} breaks the scheduler: {error!r}"
                self._report_history(what)
                raise Damaged(f"{what}; the log has the events before it. {WAYS_OUT}") from error
            count += 1
        self.state.check_all(exclusive=not self.sharing)
        self._epoch_s, self._began_at = self.state.now, time.monotonic()
        self.timeline.resume(self.state)
        return count

    def clock(self) -> float:
        """Time of the scheduler in seconds. It continues from the end of the journal, and stops while no daemon runs.

        The event loop's clock would not do: it ticks in milliseconds, so that two jobs could arrive at the same time.
        """
        return self._epoch_s + time.monotonic() - self._began_at

    @property
    def troubles(self) -> tuple[str, ...]:
        """Current problems of the policy, the disk and the record store."""
        own = self.replaced, self.journal.stalled, self.journal.worry, self.records.trouble
        return tuple(text for text in own if text)

    def decision_p99_us(self) -> float:
        """99 % quantile of the durations of the latest decisions, in microseconds."""
        return 1e6 * p99(self._decided)

    # Events -----------------------------------------------------------------------------------------------------------

    def post(self, prepare: Callable[[], Event | None], also: tuple[Statement, ...] = ()) -> asyncio.Future[None]:
        """Post an event. The result is set when the event is durable and its actions have begun.

        `prepare` is called when it is the event's turn, so that its checks still hold when the event is handled. It may
        raise an error, which the result then raises, or return None for no event; both are answered when all earlier
        events are durable. `also`: statements to write together with the event.
        """
        done = self._loop.create_future()
        self._accept(_Entry(prepare, done, also))
        return done

    def tell(self, prepare: Callable[[], Event | None]) -> None:
        """Post an event without a result."""
        self._accept(_Entry(prepare))

    def _accept(self, entry: _Entry) -> None:
        self._inbox.append(entry)
        self._news.set()

    async def run(self, performer: Performer, remember: Remember = span_rows) -> None:
        """Handle events until `halt`. `remember`: makes the statements about ended steps that are written together with
        their event. Raises the error that breaks the core: then the daemon must end."""
        self._performer, self._remember = performer, remember
        taken = 0
        while not self._halted:
            if not self._inbox:
                self._news.clear()
                await self._news.wait()
            entry = self._inbox.popleft()
            while len(self._ahead) >= AHEAD_MAX and self._fault is None:
                await self._oldest()
            if self._fault is not None:
                raise self._fault
            if self._halted:
                break
            try:
                self._take(entry)
            except Exception as error:
                if entry.done is not None and not entry.done.done():
                    entry.done.set_exception(AutoschedError(f"the daemon is broken and ends, see its log: {error!r}"))
                raise
            taken += 1
            if taken % AT_ONCE == 0:
                await asyncio.sleep(0)
        while self._ahead and self._fault is None:
            await self._oldest()

    async def durable(self) -> None:
        """Wait until all decisions so far are durable, so that no crash can undo what an answer shows.

        Waits at most DURABLE_WAIT_S, since users must see the problem (`troubles`) while the disk is full.
        """
        stored = next((entry.stored for entry in reversed(self._ahead) if entry.stored is not None), None)
        if stored is not None:
            await asyncio.wait({stored}, timeout=DURABLE_WAIT_S)

    async def _oldest(self) -> None:
        """Wait until the oldest entry is durable."""
        stored = self._ahead[0].stored
        assert stored is not None, "an event with nothing to store waits for no commit"
        await asyncio.wait({stored})

    def halt(self) -> None:
        """Stop handling events. Waiting events were not answered."""
        self._halted = True
        self.tell(lambda: None)

    def _take(self, entry: _Entry) -> None:
        """Prepare and decide an entry, whose turn it is."""
        try:
            event = entry.prepare()
        except AutoschedError as refused:
            entry.refused = refused.with_traceback(None)  # the traceback refers to this frame, and so to the entry
            event = None
        if event is not None:
            self._happen(entry, event)
        self._ahead.append(entry)
        if len(self._ahead) == 1:
            self._go_on()
        for action in entry.decision.actions if entry.decision is not None else ():
            if isinstance(action, ReplacePolicy):
                self._take(_Entry(partial(PolicyChosen, action.instead, self.state.goal, BY, action.reason)))

    def _happen(self, entry: _Entry, event: Event) -> None:
        entry.now = now = max(self.clock(), self.state.now)
        entry.ended = ended = self.timeline.ended_by(event, self.state, now)
        try:
            entry.decision = decision = self._decide(now, event)
        except Exception:
            self._report_history(f"{type(event).__name__} breaks the scheduler")
            raise
        self.timeline.end(ended)
        steps = decision.steps
        for step in steps:
            self.timeline.open(step, self.state.jobs[step.job].tasks[step.task].ready_at)
        entry.stored = self.journal.append(now, decision.event, steps, (*self._remember(ended), *entry.also))

    def _go_on(self, _: object = None) -> None:
        """Perform and answer the durable entries in order; called again when the next one is durable.

        Answers are set before the actions are performed: what waits for them runs in the next turn of the event loop,
        and both outputs go into one message.
        """
        ahead = self._ahead
        while ahead and self._fault is None:
            if (stored := ahead[0].stored) is not None:
                if not stored.done():
                    stored.add_done_callback(self._go_on)
                    return
                if (fault := stored.exception()) is not None:
                    self._fault = fault  # the state is ahead of the disk: the daemon must end
                    self.tell(lambda: None)
                    return
            entry = ahead.popleft()
            if entry.done is not None and not entry.done.done():
                if entry.refused is None:
                    entry.done.set_result(None)
                else:
                    entry.done.set_exception(entry.refused)
            if entry.decision is not None:
                self._perform(entry.now, entry.decision, entry.ended)

    def _decide(self, now: float, event: Event, started: tuple[Step, ...] | None = None) -> Decision:
        """Let the core handle an event. `started`: the steps of an earlier decision, to repeat it."""
        self._history.append((now, event))
        if self._budget is not None:
            self._budget.renewed()
        began_at = time.perf_counter()
        decision = self.scheduler.handle(now, event, started)
        self._wake_at = decision.wake_at
        self._decided.append(time.perf_counter() - began_at)
        self.decisions += 1
        if self.scheduler.policy.shares_units:
            self.sharing.update({step.job: None for step in decision.steps})
        match event:
            case StepEnded():  # most events are of this kind
                pass
            case JobPruned(job=job):
                self.sharing.pop(job, None)
            case ResourcesDeclared() | PolicyChosen(reason=""):
                self.replaced = ""
            case PolicyChosen():
                self.replaced = f"{event.reason}; {event.policy} decides instead"
        return decision

    def _perform(self, now: float, decision: Decision, ended: Sequence[Span]) -> None:
        event = decision.event
        self.timeline.close(ended)
        self._tell_of(now, event, ended)
        changed = {span.job: None for span in ended}
        if (job := getattr(event, "job", None)) is not None:
            changed[job] = None
        for action in decision.actions:
            match action:
                case StartStep(step=step):
                    self.stream.publish(_started(step, self.timeline.running[step.id].queued_at), now)
                    changed[step.job] = None
                case ReplacePolicy():
                    self.stream.publish(action, now)
                    continue
                case _:
                    self.stream.publish(action, now)
                    changed[action.job] = None
                    if isinstance(action, EndJob):
                        known = self.state.estimates.calibration()
                        calibrated = daemon_events.Calibrated(action.job, known.steps, known.mape, known.coverage_p90)
                        self.stream.publish(calibrated, now)
            self._performer.perform(action)
        for job in changed:
            self._performer.changed(job)
        self._arm()
        if decision.search and self._search is None and not isinstance(event, RuleChosen):
            self._search = self.scheduler.search()
            self._loop.call_soon(self._search_on)

    def _tell_of(self, now: float, event: Event, ended: Sequence[Span]) -> None:
        if not isinstance(event, StepEnded):
            self.stream.publish(event, now)
        for span in ended:
            self.stream.publish(_ended(span, now, event.error if isinstance(event, StepEnded) else ""), now)

    # The search for a better rule -------------------------------------------------------------------------------------

    def _search_on(self) -> None:
        """Let the policy compare rules, in pieces between other work of the event loop."""
        assert self._search is not None
        policy = self.scheduler.policy.name
        guard: AbstractContextManager[object] = nullcontext()
        if policy not in POLICIES and self._budget is not None:
            guard = self._budget.renewed()
        try:
            with guard:
                said = next(self._search)
        except StopIteration:
            self._search = None
        except Exception as error:  # the policy may come from any package
            self._search = None
            why = f"policy {policy!r} is broken: {type(error).__name__}: {error}"
            broken = ReplacePolicy(policy, INTERLEAVED.name, why)
            log.warning("how policy %r broke:", policy, exc_info=error)  # the event below says that it broke
            self.stream.publish(broken)
            self.tell(lambda: PolicyChosen(broken.instead, self.state.goal, BY, broken.reason))
        else:
            if said is not None:
                self.tell(lambda: said if self.scheduler.policy.name == policy else None)
            self._loop.call_soon(self._search_on)

    # The timer --------------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        """Set the timer, unless it is early enough: a timer that fires too early is cheaper than one per event."""
        if self._wake_at is None or self._wake_at >= self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = self._wake_at
        delay_s = max(0.0, self._wake_at - self.clock()) + TIMER_SLACK_S
        self._timer = self._loop.call_later(delay_s, self._ring)

    def _ring(self) -> None:
        self._timer, self._timer_at = None, math.inf
        self.tell(self._when_due)

    def _when_due(self) -> Event | None:
        if self._wake_at is not None and self._wake_at <= self.clock():
            return DeadlineReached()
        self._arm()
        return None

    def _report_history(self, what: str) -> None:
        log.critical("%s; the last events were:", what)
        for now, event in self._history:
            log.critical("  %.6f %r", now, event)


def _started(step: Step, ready_at: float) -> daemon_events.StepStarted:
    waited_s = max(0.0, step.started_at - ready_at)
    return daemon_events.StepStarted(step.id, step.job, step.task, step.stage, step.units, waited_s)


def _ended(span: Span, now: float, error: str) -> daemon_events.StepEnded:
    waited_s, held_s = max(0.0, span.started_at - span.queued_at), (span.ended_at or now) - span.started_at
    step, job, task, stage, units, outcome = span.step, span.job, span.task, span.stage, span.units, span.outcome
    return daemon_events.StepEnded(step, job, task, stage, units, outcome, waited_s, held_s, span.worked_s, error)
