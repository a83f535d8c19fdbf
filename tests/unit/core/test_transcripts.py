"""The language of transcripts."""

import msgspec
import pytest

from autosched.core.actions import (
    Action,
    EndJob,
    LaunchClient,
    ReplacePolicy,
    RevokeStep,
    StartClient,
    StartStep,
    StopClient,
)
from autosched.core.events import (
    BoardForgotten,
    BoardGone,
    BoardJoined,
    ClientAttached,
    ClientCutOff,
    ClientLost,
    ClientPlaced,
    DeadlineReached,
    Event,
    HistoryRecalled,
    HostCutOff,
    HostForgotten,
    HostJoined,
    HostLeft,
    JobAltered,
    JobCancelRequested,
    JobPruned,
    JobSubmitted,
    Paused,
    PolicyChosen,
    ResourcesDeclared,
    RuleChosen,
    StagesFreed,
    StepEnded,
    UnitDrained,
    UnitReturned,
)
from autosched.model import (
    Goal,
    JobFailure,
    JobLoad,
    JobSpec,
    JobState,
    Outcome,
    Pool,
    RpcServer,
    StageHistory,
    Step,
    TaskLoad,
    Unit,
)
from transcripts import Script, through_codec_action, through_codec_event

LOAD = JobLoad(
    tasks=(
        TaskLoad(task=0, stage_done=False, resources_now=("host",)),
        TaskLoad(task=4096, resources_next=("a", "b"), stage_next="x", expected_s=0.1, gain=1e9, timeout_s=3.0),
        TaskLoad(task=2, complete=True),
    ),
    complete=True,
    failure=JobFailure("model_rejected", "schön ist anders"),
)
EVENTS = [
    ResourcesDeclared((Pool("host", (Unit("host/0", (0, 1)), Unit("é"))),), 1.5, 2.5, "sequential"),
    JobSubmitted(1, JobSpec(name="x", model="0" * 64, shapes={"in": (1, 3)}, options={"a": True, "b": 2.5})),
    ClientAttached(1, LOAD),
    ClientCutOff(1, "it said nothing for 20 s"),
    ClientLost(2**40, ""),
    StepEnded(7, Outcome.LOST),
    StepEnded(7, Outcome.FAILED, LOAD, "no space left on device"),
    JobCancelRequested(3, "ada"),
    HistoryRecalled(1, (StageHistory(7, "build", 2.5, 3),)),
    PolicyChosen("predictive", Goal.LATENCY, "ada", "to see"),
    RuleChosen("order builds-first 2 1"),
    UnitDrained("cpu0", "its fan is loud", "ada"),
    UnitReturned("cpu0", "ada"),
    JobAltered(3, "ada", 5, 60.0, "until the fan is changed"),
    Paused("ada", "a new switch"),
    JobPruned(3),
    HostJoined("lab2", (Pool("host@lab2", (Unit("host/0@lab2", (0,), host="lab2"),)),)),
    HostCutOff("lab2", "it is silent", 12.5),
    HostLeft("lab2", "it did not come back"),
    HostForgotten("lab2"),
    BoardJoined(Unit("pi4-a", accelerator=RpcServer("a.lab:9090", "pi4")), "device:pi4"),
    BoardGone("pi4-a", "its server has hung up"),
    BoardForgotten("pi4-a"),
    ClientPlaced(3, "lab2"),
    StagesFreed(1, ("build", "profile")),
    DeadlineReached(),
]
STEP = Step(id=1, job=2, task=3, stage="build", units=("a", "b"), started_at=0.1, deadline_at=1e9)
ACTIONS = [
    StartClient(1),
    LaunchClient(1, "lab2"),
    StopClient(1, "why"),
    StartStep(STEP),
    RevokeStep(1, 2, "late"),
    EndJob(1, JobState.DONE),
    EndJob(1, JobState.FAILED, JobFailure("a", "b")),
    ReplacePolicy("theirs", "interleaved", "it raised"),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_events_survive_the_journal(event: Event) -> None:
    assert through_codec_event(event) == event


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: type(action).__name__)
def test_actions_survive_the_journal(action: Action) -> None:
    assert through_codec_action(action) == action


def test_the_cases_cover_each_event_and_action() -> None:
    assert {type(event) for event in EVENTS} == set(Event.__args__)
    assert {type(action) for action in ACTIONS} == set(Action.__args__)


@pytest.mark.parametrize(
    "event", [{"type": "JobSubmitted", "job": "one"}, {"type": "Nothing"}, {"type": "ClientLost", "job": 1}, 7]
)
def test_a_damaged_row_is_refused(event: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode(event), type=Event)


STORY = """# Why.

policy interleaved
> 0 ResourcesDeclared host=a,b attach_timeout_s=5
> 0 JobSubmitted 1
> 0.5 ClientAttached 1 | 1 build@host+host expected=3 timeout=9 | 2 busy | 3 idle | 4 complete |
? deadline
? explain 1
? explain 1 at 2.5
> 1 StepEnded 1 failed out of memory | job failed job_failed no luck today
"""


def test_a_transcript_is_written() -> None:
    played = Script().play(STORY)
    assert "< StartStep 1: job 1 task 1 build on a, b, until 9.5\n" in played
    assert "= 9.5\n" in played
    assert "= task 1 runs on a, b: build for 2s, likely done in 1s, killed in 7s at the latest\n" in played
    assert "< EndJob 1: failed: job_failed: no luck today\n< StopClient 1: job 1 is failed\n" in played


def test_a_transcript_is_reproducible() -> None:
    played = Script().play(STORY)
    assert Script().play(played) == played
    assert [line for line in played.splitlines() if line[:2] not in ("< ", "= ")] == STORY.splitlines()
