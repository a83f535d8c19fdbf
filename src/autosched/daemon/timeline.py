"""Steps as spans of time, for people who look at the past, and how busy each unit was in this life of the daemon."""

from collections import OrderedDict
from collections.abc import Sequence

from autosched.core.events import ClientAttached, ClientLost, Event, HostLeft, ResourcesDeclared, StepEnded
from autosched.core.state import State
from autosched.model import JobId, Outcome, Step, StepId, UnitName
from autosched.protocol import Span

ENDED_KEPT = 4_096
"""Ends of steps are known by heart up to here: clients that have not heard the answer ask again at once. More than
there are units: what runs when such a client speaks is known as ended when its turn comes."""


class Timeline:
    """The running steps; those that ended are in the store."""

    def __init__(self) -> None:
        self.began_at = 0.0
        self.running: dict[StepId, Span] = {}
        self.ended: OrderedDict[StepId, tuple[JobId, str]] = OrderedDict()
        """Job and outcome of the steps that ended last."""
        self.longest_s = 0.0
        """Maximum length of a step, in seconds: of those of this life of the daemon, and the step time-out."""
        self._busy_s: dict[UnitName, float] = {}

    def open(self, step: Step, queued_at: float) -> None:
        """A step was started."""
        self.running[step.id] = Span(
            step.id, step.job, step.task, step.stage, step.units, queued_at, step.started_at, None, "running"
        )

    def resume(self, state: State) -> None:
        """After a replay: what runs is known from the state."""
        self.began_at, self.longest_s = state.now, state.step_timeout_s
        for step in state.steps.values():
            self.open(step, state.jobs[step.job].tasks[step.task].ready_at)

    def ended_by(self, event: Event, state: State, now: float) -> list[Span]:
        """The running steps that this event ends, as they will be remembered."""
        match event:
            case StepEnded(step=step, outcome=outcome):
                ended = state.steps.get(step)
                return [self._ended(ended, outcome, now, event.worked_s)] if ended is not None else []
            case ClientLost(job=job):
                return [self._ended(state.steps[step], Outcome.LOST, now) for step in state.jobs[job].steps]
            case ClientAttached(job=job, holds=holds) if holds is not None:
                lost = [step for step in state.jobs[job].steps if step not in holds]
                return [self._ended(state.steps[step], Outcome.LOST, now) for step in lost]
            case ResourcesDeclared(kept=kept):  # the daemon died at some time after its last event
                lost = [step.id for step in state.steps.values() if step.job not in kept]
                return [self._ended(state.steps[step], Outcome.LOST, state.now) for step in lost]
            case HostLeft(host=host):
                return [self._ended(step, Outcome.LOST, now) for step in state.steps_on(host)]
            case _:
                return []

    def _ended(self, step: Step, outcome: Outcome, now: float, worked_s: float | None = None) -> Span:
        known = self.running.get(step.id)
        queued_at = known.queued_at if known is not None else step.started_at
        return Span(
            step.id,
            step.job,
            step.task,
            step.stage,
            step.units,
            queued_at,
            step.started_at,
            now,
            outcome.value,
            worked_s,
        )

    def end(self, spans: Sequence[Span]) -> None:
        """These end: known before it is durable, since answers to who says so again wait for that as well."""
        for span in spans:
            self.ended[span.step] = span.job, span.outcome
            if len(self.ended) > ENDED_KEPT:
                self.ended.popitem(last=False)

    def close(self, spans: Sequence[Span]) -> None:
        """These have ended."""
        for span in spans:
            if self.running.pop(span.step, None) is not None and span.ended_at is not None:
                held_s = span.ended_at - span.started_at
                self.longest_s = max(self.longest_s, held_s)
                for unit in span.units:
                    self._busy_s[unit] = self._busy_s.get(unit, 0.0) + held_s

    def busy_s(self, unit: UnitName, now: float) -> float:
        """Seconds for which the unit was leased in this life of the daemon."""
        under_way = sum(now - span.started_at for span in self.running.values() if unit in span.units)
        return self._busy_s.get(unit, 0.0) + under_way

    def busy_ratio(self, unit: UnitName, now: float) -> float:
        """Share of this life of the daemon in which the unit was leased."""
        return min(1.0, self.busy_s(unit, now) / max(now - self.began_at, 1e-9))
