"""The loop: an event is journalled, then the core decides, then the actions are performed; then comes the next one."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from autosched.core.actions import Action, StartStep
from autosched.core.events import DeadlineReached, Event
from autosched.core.scheduler import Scheduler
from autosched.core.state import State
from autosched.daemon.journal import Journal, JournalDamaged
from autosched.daemon.store import span_rows
from autosched.daemon.timeline import Timeline
from autosched.errors import AutoschedError
from autosched.model import JobId, Step

log = logging.getLogger(__name__)

HISTORY = 40
"""Events that are logged when an invariant breaks."""
TIMER_SLACK_S = 0.002
_tasks: set[asyncio.Task[Any]] = set()


def spawn(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """Run in the background: the reference is kept, and a crash is logged."""
    task = asyncio.get_running_loop().create_task(work, name=name)
    _tasks.add(task)
    task.add_done_callback(_report)
    return task


def _report(task: asyncio.Task[None]) -> None:
    _tasks.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("%s crashed", task.get_name(), exc_info=error)


class Performer(Protocol):
    """Whoever carries out what the core asks for. Neither method may wait."""

    def perform(self, action: Action) -> None:
        """Begin to do it."""

    def changed(self, job: JobId) -> None:
        """Something about the job is different now."""


@dataclass(slots=True, eq=False)
class _Entry:
    prepare: Callable[[], Event | None]
    droppable: bool
    done: asyncio.Future[None] | None


class Runtime:
    """The scheduler on a real clock."""

    def __init__(self, journal: Journal, scheduler: Scheduler) -> None:
        self.journal = journal
        self.scheduler = scheduler
        self.timeline = Timeline()
        self.performer: Performer | None = None
        self._loop = asyncio.get_running_loop()
        self._inbox: asyncio.Queue[_Entry] = asyncio.Queue()
        self._history: deque[tuple[float, Event]] = deque(maxlen=HISTORY)
        self._timer: asyncio.TimerHandle | None = None
        self._began_at = self._loop.time()
        self._epoch_s = 0.0

    @property
    def state(self) -> State:
        """What the core knows; to be read only."""
        return self.scheduler.state

    def replay(self) -> int:
        """Feed the core with the journal; actions of the past are not performed. Returns the number of events."""
        count = 0
        for now, event in self.journal.replay():
            self._history.append((now, event))
            try:
                self.scheduler.handle(now, event)
            except Exception as error:
                what = f"row {self.journal.seq} of {self.journal.path} breaks the scheduler: {error!r}"
                self._report_history(what)
                raise JournalDamaged(f"{what}. Nothing was changed; the log has the events before it") from error
            count += 1
        self.state.check_all(exclusive=not self.scheduler.policy.shares_units)
        self._epoch_s, self._began_at = self.state.now, self._loop.time()
        self.timeline.began_at = self.state.now
        return count

    def clock(self) -> float:
        """Seconds of the scheduler: they go on where the journal ends, and stand still while no daemon runs."""
        return self._epoch_s + self._loop.time() - self._began_at

    # Events in --------------------------------------------------------------------------------------------------------

    async def post(self, prepare: Callable[[], Event | None], *, droppable: bool = False) -> None:
        """Let something happen; returns when it is durable and its actions are begun.

        `prepare` is called when the event's turn comes: what it checks still holds when the event is handled. It may
        raise what this then raises, or return None when there is nothing to say any more. A droppable event is
        Refused when it cannot be stored.
        """
        done = self._loop.create_future()
        self._inbox.put_nowait(_Entry(prepare, droppable, done))
        await asyncio.shield(done)

    def tell(self, prepare: Callable[[], Event | None]) -> None:
        """As post, without waiting."""
        self._inbox.put_nowait(_Entry(prepare, False, None))

    async def run(self) -> None:
        """Handle events for ever. Raises what breaks the core: then nothing may go on."""
        while True:
            entry = await self._inbox.get()
            try:
                event = entry.prepare()
                if event is not None:
                    await self._happen(event, entry.droppable)
            except AutoschedError as error:
                if entry.done is not None and not entry.done.done():
                    entry.done.set_exception(error)
                    entry.done.exception()  # whoever posted it may be gone: that is no crash
            except Exception as error:
                if entry.done is not None and not entry.done.done():
                    entry.done.set_exception(AutoschedError(f"the daemon is broken and ends, see its log: {error!r}"))
                raise
            else:
                if entry.done is not None and not entry.done.done():
                    entry.done.set_result(None)

    async def _happen(self, event: Event, droppable: bool) -> None:
        now = max(self.clock(), self.state.now)
        ended = self.timeline.ended_by(event, self.state, now)
        await self.journal.append(now, event, span_rows(ended), droppable=droppable)
        self._history.append((now, event))
        try:
            actions = self.scheduler.handle(now, event)
        except Exception:
            self._report_history(f"{type(event).__name__} breaks the scheduler")
            raise
        log.info("%s", describe(event, now))
        self.timeline.close(ended)
        changed = {span.job: None for span in ended}
        if (job := getattr(event, "job", None)) is not None:
            changed[job] = None
        assert self.performer is not None
        for action in actions:
            log.info("%s", describe(action, now))
            if isinstance(action, StartStep):
                task = self.state.jobs[action.step.job].tasks[action.step.task]
                self.timeline.open(action.step, task.ready_at)
            changed[action.step.job if isinstance(action, StartStep) else action.job] = None
            self.performer.perform(action)
        for job in changed:
            self.performer.changed(job)
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline_at = self.scheduler.deadline()
        if deadline_at is not None:
            delay_s = max(0.0, deadline_at - self.clock()) + TIMER_SLACK_S
            self._timer = self._loop.call_later(delay_s, self.tell, self._when_due)

    def _when_due(self) -> Event | None:
        deadline_at = self.scheduler.deadline()
        if deadline_at is not None and deadline_at <= self.clock():
            return DeadlineReached()
        self._arm()
        return None

    def _report_history(self, what: str) -> None:
        log.critical("%s; the last events were:", what)
        for now, event in self._history:
            log.critical("  %.6f %r", now, event)


def describe(happening: Event | Action, now: float) -> str:
    """One line for the log: what, when, and the words that matter."""
    words = [type(happening).__name__, f"now_s={now:.3f}"]
    step = getattr(happening, "step", None)
    if isinstance(step, Step):
        words.append(f"step={step.id} job={step.job} task={step.task} stage={step.stage} units={','.join(step.units)}")
    else:
        for name in ("job", "step", "outcome", "state", "reason", "error", "by"):
            value = getattr(happening, name, None)
            if value not in (None, ""):
                text = str(value)
                plain = text.isprintable() and " " not in text
                words.append(f"{name}={text if plain else msgspec.json.encode(text).decode()}")
    return " ".join(words)
