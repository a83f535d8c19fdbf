"""Events as sentences."""

from pathlib import Path

import pytest

import autosched
from autosched.core import actions, events
from autosched.daemon.event_stream.daemon_events import (
    CandidateBlocked,
    DaemonEvent,
    DeviceDisturbed,
    DeviceDrifts,
    DeviceSteady,
    Kept,
    LoopStalled,
    RecordsTagged,
    What,
)
from autosched.daemon.event_stream.event_sentences import STALLED, sentence
from autosched.daemon.event_stream.recent_events import TOLD
from autosched.model import Goal, JobFailure, JobLoad, JobSpec, JobState

SPEC = JobSpec(name="squeezenet", model="0" * 64, backend="tc")
SENTENCES: tuple[tuple[What, str], ...] = (
    (events.JobSubmitted(3, SPEC, "uid 7"), "job 3 submitted by uid 7: squeezenet, backend tc, on a cpu device"),
    (events.JobSubmitted(3, SPEC), "job 3 submitted: squeezenet, backend tc, on a cpu device"),
    (events.JobAltered(3, "ops", 0, None, "later"), "job 3 held by ops: later"),
    (events.JobAltered(3, "ops", 5, None), "job 3 changed by ops: priority 5"),
    (events.JobAltered(3, "ops", 5, 60.0), "job 3 changed by ops: priority 5, to be done 1m00s after its submission"),
    (events.JobCancelRequested(3, "ops"), "job 3 is to be cancelled by ops"),
    (actions.EndJob(3, JobState.DONE), "job 3 done"),
    (actions.EndJob(3, JobState.FAILED, JobFailure("x", "no device")), "job 3 failed: no device"),
    (events.ClientCutOff(3, "it is silent"), "the client of job 3 is cut off: it is silent"),
    (events.ClientLost(3, "SIGKILL"), "the client of job 3 is gone: SIGKILL"),
    (actions.RevokeStep(9, 3, "too long"), "step 9 of job 3 is killed: too long"),
    (events.Paused("ops", "storm"), "paused by ops: storm"),
    (events.Paused("ops"), "steps start again by ops"),
    (events.PolicyChosen("interleaved", Goal.LATENCY, "ops"), "policy interleaved, goal latency, chosen by ops"),
    (actions.ReplacePolicy("mine", "interleaved", "it raised"), "interleaved decides instead of mine: it raised"),
    (events.UnitDrained("pi4-1", "new fan", "ops"), "pi4-1 drained by ops: new fan"),
    (events.UnitReturned("pi4-1", "ops"), "pi4-1 gets steps again by ops"),
    (DeviceDrifts("cpu0", "9 % slower"), "cpu0 is not as fast as it was: 9 % slower"),
    (DeviceSteady("cpu0"), "cpu0 is steady again"),
    (DeviceDisturbed("cpu0", 0.25), "other programs used 25 % of a core of cpu0 during a step"),
    (RecordsTagged(3, 2, "drift"), "2 records of job 3 tagged: drift"),
    (CandidateBlocked(4, "w", "run crash"), "candidate 4 is not run any more: run crash"),
    (Kept("snapshot", "here"), "snapshot made: here"),
    (LoopStalled(0.25, "f at x.py:1"), "the daemon stood still for 250 ms in f at x.py:1"),
    (events.ClientAttached(3, JobLoad()), "ClientAttached job=3"),
)


@pytest.mark.parametrize(("what", "said"), SENTENCES)
def test_each_event_is_a_sentence(what: What, said: str) -> None:
    assert sentence(DaemonEvent(0.0, 0.0, what)) == said


def test_each_event_of_the_page_has_a_sentence() -> None:
    assert {kind.__name__ for kind in TOLD} - {type(what).__name__ for what, _ in SENTENCES} == {"Said"}


def test_the_page_knows_a_stall_by_its_first_words() -> None:
    page = Path(autosched.__file__).parent / "daemon" / "web" / "static" / "feed.js"
    assert f'startsWith("{STALLED}")' in page.read_text()
