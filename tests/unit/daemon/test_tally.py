"""What the daemon counts about itself."""

import asyncio
import time

from autosched.core.actions import EndJob
from autosched.daemon import tally as tallies
from autosched.daemon.happenings import Happening, Recorded, RecordsTagged, StepEnded, StepStarted, What
from autosched.daemon.tally import Histogram, Tally, watch_loop
from autosched.model import JobState


def told(*everything: What) -> Tally:
    tally = Tally()
    for what in everything:
        tally.take(Happening(0.0, 0.0, what))
    return tally


def ended(stage: str, outcome: str, held_s: float) -> StepEnded:
    return StepEnded(1, 1, 1, stage, ("cpu0",), outcome, 0.0, held_s)


def test_a_histogram_counts_what_is_at_most_so_large() -> None:
    histogram = Histogram((1.0, 10.0))
    for value in (0.5, 1.0, 5.0, 50.0):
        histogram.add(value)
    assert histogram.cumulative() == [("1.0", 2), ("10.0", 3), ("+Inf", 4)]
    assert histogram.sum == 56.5


def test_everything_is_counted_by_what_it_is() -> None:
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
    assert tally.happenings["Recorded"] == 3


def test_clients_cannot_invent_labels_without_end() -> None:
    tally = told(*(ended(f"stage {number}", "done", 1.0) for number in range(1_000)))
    assert len(tally.step_s) == tallies.STAGES_MAX + 1
    assert sum(tally.steps.values()) == 1_000


def test_a_loop_that_is_held_up_is_noticed() -> None:
    async def live() -> tuple[Tally, list[float]]:
        tally, stalls, turned = Tally(), list[float](), asyncio.Event()

        def hold_up() -> None:
            if tally.lag_s.cumulative()[-1][1] == 2:
                turned.set()

        watching = asyncio.ensure_future(watch_loop(tally, hold_up, stalls.append))
        async with asyncio.timeout(20):
            await asyncio.sleep(0)
            asyncio.get_running_loop().call_later(0.2, time.sleep, 0.4)
            await turned.wait()
        watching.cancel()
        return tally, stalls

    tally, stalls = asyncio.run(live())
    assert len(stalls) >= 1
    assert tally.lag_s.sum >= 0.3
