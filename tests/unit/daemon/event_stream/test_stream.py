"""The event stream: a listener gets its kinds in order, and a slow one cannot delay others."""

import asyncio
import logging

import pytest

from autosched.core.actions import EndJob, StartStep
from autosched.core.events import ClientLost, DeadlineReached, JobSubmitted, UnitDrained
from autosched.daemon.event_stream.daemon_events import DaemonEvent, Dropped, Recorded, Said, StepEnded, What
from autosched.daemon.event_stream.stream import EVERYTHING, Filter, Stream
from autosched.errors import RequestError
from autosched.model import JobFailure, JobSpec, JobState, Step
from deadlines import DEADLINE_S

STEP = Step(id=7, job=3, task=1, stage="build", units=("host/0",), started_at=1.0, deadline_at=9.0)
ENDED = StepEnded(7, 3, 1, "build", ("host/0",), "done", 0.5, 2.0, 1.9)


def event(what: What) -> DaemonEvent:
    return DaemonEvent(1.5, 1_700_000_000.25, what)


def test_an_event_is_a_line_of_text() -> None:
    lost = event(ClientLost(3, "exit code 1\nand more"))
    assert lost.text() == r'ClientLost job=3 reason="exit code 1\nand more" progressed=False hindered=False'
    assert lost.line().endswith(".250 " + lost.text())
    assert event(EndJob(3, JobState.DONE)).text() == "EndJob job=3 state=done"
    assert event(EndJob(3, JobState.FAILED, JobFailure("x", "no luck"))).text() == (
        'EndJob job=3 state=failed failure="no luck"'
    )
    assert event(StartStep(STEP)).text() == "StartStep step=7 job=3 task=1 stage=build units=host/0"
    assert event(ENDED).text() == (
        "StepEnded step=7 job=3 task=1 stage=build units=host/0 outcome=done waited_s=0.5 held_s=2 worked_s=1.9"
    )
    assert event(Said(logging.INFO, "there", "some words")).text() == "some words"


def test_an_event_is_a_json_object() -> None:
    submitted = JobSubmitted(4, JobSpec(name="net", model="0" * 64, options={"secret": "x"}))
    assert event(submitted).json() == (
        b'{"what":"JobSubmitted","at":1.5,"time":1700000000.25,"job":4,"name":"net","backend":"autotvm","target":"auto",'
        b'"device":"cpu"}'
    )


def test_each_kind_of_event_names_its_jobs_and_units() -> None:
    assert [event(what).job for what in (ENDED, StartStep(STEP), ClientLost(5, "x"))] == [3, 3, 5]
    assert [event(what).units for what in (ENDED, StartStep(STEP), UnitDrained("cpu0", "fan", "me"))] == [
        ("host/0",),
        ("host/0",),
        ("cpu0",),
    ]
    assert event(DeadlineReached()).job is None


@pytest.mark.parametrize(
    ("words", "passed"),
    [
        ("", ["ClientLost", "StepEnded", "UnitDrained"]),
        ("job=3", ["StepEnded"]),
        ("job=3,5", ["ClientLost", "StepEnded"]),
        ("unit=cpu0", ["UnitDrained"]),
        ("unit=host/0 job=5", []),
        ("what=Recorded,ClientLost", ["ClientLost", "Recorded"]),
        ("level=debug", ["ClientLost", "StepEnded", "UnitDrained", "Recorded"]),
        ("level=warning", []),
    ],
)
def test_a_filter_passes_matching_events(words: str, passed: list[str]) -> None:
    everything: list[What] = [
        ClientLost(5, "x"),
        ENDED,
        UnitDrained("cpu0", "fan", "me"),
        Recorded(6, 1, 0, "trial", "cpu1", 0.1),
    ]
    wants = Filter.parse(words).wants
    assert [one.name for one in map(event, everything) if wants(one)] == passed


@pytest.mark.parametrize("words", ["job", "job=x", "job=", "colour=red", "level=loud", "monitor"])
def test_a_malformed_filter_is_refused_with_an_example(words: str) -> None:
    with pytest.raises(RequestError, match="write for example: job=12,14"):
        Filter.parse(words)


def test_a_reader_gets_events_and_the_number_of_missed_ones() -> None:
    async def read() -> list[What]:
        stream = Stream(lambda: 2.5)
        with stream.subscribe(waiting_max=2) as reader:
            for job in range(1, 6):
                stream.publish(ClientLost(job, "x"))
            got = [(await anext(reader)).what for _ in range(3)]
            stream.publish(ClientLost(6, "x"))
            got.append((await anext(reader)).what)
            assert reader.dropped == 3
        stream.publish(ClientLost(7, "x"))
        got.extend([event.what async for event in reader])
        return got

    assert asyncio.run(read()) == [ClientLost(1, "x"), ClientLost(2, "x"), Dropped(3), ClientLost(6, "x")]


def test_missed_events_are_reported_at_their_place() -> None:
    async def read() -> list[What]:
        stream = Stream(lambda: 2.5)
        reader = stream.subscribe(waiting_max=2)
        for job in (1, 2, 3, 4):
            stream.publish(ClientLost(job, "x"))
        return [event.what for event in reader.take() + reader.take()]

    assert asyncio.run(read()) == [ClientLost(1, "x"), ClientLost(2, "x"), Dropped(2)]


def test_a_reader_that_waits_is_woken() -> None:
    async def read() -> What:
        stream = Stream(lambda: 2.5)
        async with asyncio.timeout(DEADLINE_S):
            with stream.subscribe(Filter.parse("job=2")) as reader:
                first = asyncio.ensure_future(anext(reader))
                await asyncio.sleep(0)
                stream.publish(ClientLost(1, "x"))
                stream.publish(ClientLost(2, "x"))
                return (await first).what

    assert asyncio.run(read()) == ClientLost(2, "x")


def test_a_failing_listener_is_detached_without_effect_on_others(caplog: pytest.LogCaptureFixture) -> None:
    stream, seen = Stream(lambda: 2.5), list[DaemonEvent]()

    def broken(_: DaemonEvent) -> None:
        raise ZeroDivisionError

    stream.attach(broken)
    stream.attach(seen.append)
    stream.publish(ClientLost(1, "x"))
    stream.publish(ClientLost(2, "x"), at=1.0)
    assert [(one.at, one.job) for one in seen] == [(2.5, 1), (1.0, 2)]
    assert caplog.text.count("is told nothing more") == 1


def test_a_later_reader_gets_later_events_of_its_kinds() -> None:
    stream, first, second = Stream(lambda: 2.5), list[DaemonEvent](), list[DaemonEvent]()
    stream.attach(first.append)
    stream.publish(ClientLost(1, "x"))
    stream.attach(second.append, ClientLost)
    stream.publish(ClientLost(2, "x"))
    stream.publish(DeadlineReached())
    assert [one.job for one in first] == [1, 2, None]
    assert [one.job for one in second] == [2]


def test_a_reader_without_a_filter_gets_all_events() -> None:
    assert EVERYTHING.wants(event(DeadlineReached()))
    assert not Filter().wants(event(DeadlineReached()))
