"""Counters of the daemon."""

from autosched.core.actions import EndJob
from autosched.daemon.event_stream import counters as tallies
from autosched.daemon.event_stream.counters import Counters, Histogram
from autosched.daemon.event_stream.daemon_events import (
    DaemonEvent,
    Recorded,
    RecordsTagged,
    StepEnded,
    StepStarted,
    What,
)
from autosched.model import JobState


def told(*everything: What) -> Counters:
    tally = Counters()
    for what in everything:
        tally.take(DaemonEvent(0.0, 0.0, what))
    return tally


def ended(stage: str, outcome: str, held_s: float) -> StepEnded:
    return StepEnded(1, 1, 1, stage, ("cpu0",), outcome, 0.0, held_s)


def test_a_histogram_counts_values_up_to_each_bound() -> None:
    histogram = Histogram((1.0, 10.0))
    for value in (0.5, 1.0, 5.0, 50.0):
        histogram.add(value)
    assert histogram.cumulative() == [("1.0", 2), ("10.0", 3), ("+Inf", 4)]
    assert histogram.sum == 56.5


def test_events_are_counted_by_kind() -> None:
    tally = told(
        StepStarted(1, 1, 1, "build", ("host/0",), 0.2),
        ended("build", "done", 2.0),
        ended("build", "failed", 90.0),
        Recorded(1, 1, 0, "trial", "cpu0", 0.1),
        Recorded(1, 1, 1, "trial", "cpu0", None, "build error"),
        Recorded(1, 1, 2, "final", "cpu0", 0.1),
        RecordsTagged(1, 3, "hot"),
        EndJob(1, JobState.DONE),
    )
    assert tally.steps == {("build", "done"): 1, ("build", "failed"): 1}
    assert (tally.step_s["build"].sum, tally.wait_s["build"].sum) == (2.0, 0.2)
    assert tally.trials == {"ok": 1, "build error": 1}
    assert (tally.retakes, tally.disturbed, tally.jobs_ended) == (1, 3, {"done": 1})
    assert tally.events["Recorded"] == 3


def test_labels_from_clients_are_limited() -> None:
    tally = told(*(ended(f"stage {number}", "done", 1.0) for number in range(1_000)))
    assert len(tally.step_s) == tallies.STAGES_MAX + 1
    assert sum(tally.steps.values()) == 1_000
