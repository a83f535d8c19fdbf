"""Drifts detected by sentinels, and the records that they tag."""

import asyncio
import random
from typing import cast

import pytest

from autosched.core.state import Slot
from autosched.daemon.devices.device_monitor import (
    LEARNED_FROM,
    SETTLES_AFTER,
    UNSEEN_ON_BOARDS,
    DeviceMonitor,
    DeviceWatch,
    Health,
    Tagged,
)
from autosched.daemon.event_stream.daemon_events import ClientNews, DaemonEvent
from autosched.daemon.event_stream.stream import Stream
from autosched.daemon.jobs.progress import ProgressRegistry
from autosched.daemon.storage.job_store import JobStore
from autosched.model import DeviceNote, JobId, RpcServer, Unit
from autosched.protocol import DeviceCondition, TagRecords

INTERVAL_S = 30.0


class Story:
    """A device on which each step makes one record, and runs the sentinel on request."""

    def __init__(self) -> None:
        self.watch = DeviceWatch(INTERVAL_S)
        self.now = 0.0
        self.number = -1

    def step(self, core_s: float = 1e-3, memory_s: float = 5e-3, after_s: float = INTERVAL_S) -> Tagged | None:
        self.now += after_s
        sentinel = self.watch.begin(self.now)
        self.number += 1
        self.watch.recorded(1, self.number, self.now)
        return self.watch.noted(DeviceNote(core_s, memory_s, 0.0, 1.0) if sentinel else DeviceNote(), self.now)

    def learned(self) -> "Story":
        for _ in range(LEARNED_FROM):
            assert self.step() is None
        return self


def trials(tagged: Tagged | None) -> list[int]:
    assert tagged is not None
    return [trial for _, trial in tagged.records]


def test_the_first_lease_and_then_each_interval_asks_for_the_sentinel() -> None:
    story = Story()
    assert story.watch.begin(0.0)
    assert story.watch.condition is DeviceCondition.LEARNING
    story.learned()
    assert not story.watch.begin(story.now + INTERVAL_S / 2)
    assert story.watch.begin(story.now + INTERVAL_S)


def test_a_drift_tags_what_was_measured_since_the_last_good_sentinel() -> None:
    story = Story().learned()  # records 0 to 4; the last good sentinel ran before 4
    assert story.step(core_s=1.2e-3) is None, "one proves nothing"
    tagged = story.step(core_s=1.2e-3, after_s=1.0)
    assert trials(tagged) == [4, 5]
    assert tagged is not None
    assert tagged.reason == "the device was 20 % slower than its baseline (core)"
    assert "drifting for 0s: the device was 20 % slower" in story.watch.health(story.now)
    assert story.watch.condition is DeviceCondition.DRIFTING


def test_while_a_device_drifts_each_step_is_checked_and_tagged() -> None:
    story = Story().learned()
    story.step(memory_s=9e-3)
    story.step(memory_s=9e-3, after_s=1.0)
    assert trials(story.step(memory_s=9e-3, after_s=1.0)) == [6]
    assert trials(story.step(after_s=1.0)) == [7], "it began while the device drifted"
    assert story.step(after_s=INTERVAL_S) is None
    assert story.watch.health(story.now).startswith("steady")
    assert story.watch.condition is DeviceCondition.STEADY


def test_a_single_bad_sentinel_is_followed_by_another_at_once_and_forgotten() -> None:
    story = Story().learned()
    assert story.step(core_s=2e-3) is None
    assert story.watch.begin(story.now + 0.1)
    assert story.step(after_s=0.2) is None
    assert story.step() is None
    assert not story.watch.open


def test_a_baseline_of_a_slow_device_is_dropped_and_its_records_are_tagged() -> None:
    story = Story().learned()
    assert story.step() is None
    story.step(core_s=0.5e-3)
    tagged = story.step(core_s=0.5e-3, after_s=1.0)
    assert trials(tagged) == list(range(7))
    assert tagged is not None
    assert "50 % slower then" in tagged.reason
    for _ in range(LEARNED_FROM):
        assert story.step(core_s=0.5e-3) is None
    assert story.watch.core.baseline_s == 0.5e-3


def test_a_drift_that_stays_becomes_the_baseline() -> None:
    story = Story().learned()
    for _ in range(SETTLES_AFTER):
        story.step(core_s=1.5e-3)
    for _ in range(LEARNED_FROM):
        story.step(core_s=1.5e-3)
    assert story.step(core_s=1.5e-3) is None
    assert story.watch.health(story.now).startswith("steady")
    assert story.watch.condition is DeviceCondition.STEADY


@pytest.mark.parametrize("spread", [0.002, 0.02, 0.1])
def test_noise_is_learned_and_is_no_drift(spread: float) -> None:
    rng, story = random.Random(1), Story()
    tagged = [story.step(1e-3 * (1 + rng.uniform(-spread, spread))) for _ in range(500)]
    assert sum(one is not None for one in tagged) <= 5
    assert story.watch.core.noise < max(0.035, 5 * spread)


def test_a_slow_drift_is_detected_against_the_fixed_baseline() -> None:
    story = Story().learned()
    assert any(story.step(core_s=1e-3 * (1 + i / 200)) is not None for i in range(30))


def test_other_load_is_part_of_the_health_for_a_while_and_asks_for_a_sentinel() -> None:
    story = Story().learned()
    story.watch.noted(DeviceNote(foreign_s=0.3, watched_s=1.0), story.now)
    assert "other programs used 30 % of a core 5s ago" in story.watch.health(story.now + 5)
    assert story.watch.begin(story.now + 1)
    assert "other programs" not in story.watch.health(story.now + 1_000)


def test_a_system_on_which_load_cannot_be_seen_is_named() -> None:
    story = Story().learned()
    story.watch.noted(DeviceNote(foreign_s=None, watched_s=1.0), story.now)
    assert story.watch.health(story.now).endswith("other load cannot be seen on this system")


class Kept:
    """A store that keeps tags."""

    def __init__(self) -> None:
        self.tags: list[tuple[JobId, tuple[int, ...], str]] = []

    def tag(self, job: JobId, trials: tuple[int, ...], reason: str) -> asyncio.Future[None]:
        self.tags.append((job, tuple(trials), reason))
        return cast(asyncio.Future[None], None)


def told_on(stream: Stream) -> dict[JobId, TagRecords]:
    """Returns the tags of each job that are published for its client from now on."""
    told: dict[JobId, TagRecords] = {}

    def hear(event: DaemonEvent) -> None:
        if isinstance(what := event.what, ClientNews) and isinstance(what.news, TagRecords):
            told[what.job] = what.news

    stream.attach(hear, ClientNews)
    return told


def test_each_job_receives_the_tags_of_its_own_records() -> None:
    kept, progress, stream = Kept(), ProgressRegistry(), Stream(lambda: 0.0)
    published: list[str] = []
    stream.attach(lambda event: published.append(event.name))
    told = told_on(stream)
    monitor = DeviceMonitor(cast(JobStore, kept), progress, stream, INTERVAL_S)
    slot = Slot(Unit("cpu0", (1,)), [("device:cpu", 0)])
    for i, core_s in enumerate([1.0] * LEARNED_FROM + [1.5, 1.5]):
        assert monitor.begin(slot, INTERVAL_S * i)
        monitor.of("cpu0").recorded(1 + i % 2, i, INTERVAL_S * i)
        monitor.noted("cpu0", DeviceNote(core_s, 1.0), INTERVAL_S * i)
    assert [(job, trials) for job, trials, _ in kept.tags] == [(1, (4,)), (2, (5,))]
    assert {job: tags.numbers for job, tags in told.items()} == {1: (4,), 2: (5,)}
    assert progress.get(2).disturbed == {5}
    assert published == ["DeviceDrifts", "RecordsTagged", "ClientNews", "RecordsTagged", "ClientNews"]


def test_records_measured_while_other_programs_ran_are_tagged() -> None:
    kept, stream = Kept(), Stream(lambda: 0.0)
    told = told_on(stream)
    monitor = DeviceMonitor(cast(JobStore, kept), ProgressRegistry(), stream, INTERVAL_S)
    for trial in range(10):
        monitor.of("board@lab2").recorded(1 + trial % 2, trial, float(trial))
    monitor.disturbed("board@lab2", 7.0, "its owner is back")
    assert [(job, trials) for job, trials, _ in kept.tags] == [(2, (7, 9)), (1, (8,))]
    assert {job: tags.numbers for job, tags in told.items()} == {1: (8,), 2: (7, 9)}
    monitor.disturbed("board@lab2", 10.0, "its owner is back")
    monitor.disturbed("board@lab3", 0.0, "its owner is back")
    assert len(kept.tags) == 2


def test_boards_and_devices_with_cores_are_watched() -> None:
    monitor = DeviceMonitor(cast(JobStore, Kept()), ProgressRegistry(), Stream(lambda: 0.0), INTERVAL_S)
    lane, gpu = Slot(Unit("host/0", (0,)), [("host", 0)]), Slot(Unit("gpu0"), [("device:gpu", 0)])
    board = Slot(Unit("pi4-0", accelerator=RpcServer("127.0.0.1", 9090, "pi4")), [("device:pi4", 0)])
    assert not monitor.begin(lane, 0.0)
    assert not monitor.begin(gpu, 0.0)
    assert monitor.begin(board, 0.0)
    for i in range(LEARNED_FROM):
        monitor.noted("pi4-0", DeviceNote(1.0, 1.0), float(i))
    assert not monitor.begin(board, float(LEARNED_FROM))
    assert monitor.health(board, 0.0) == Health(
        f"steady, noise 3 % core, 3 % memory; {UNSEEN_ON_BOARDS}", DeviceCondition.STEADY
    )
    assert monitor.health(lane, 0.0) == Health()
    assert monitor.health(gpu, 0.0) == Health("not watched: no cores", DeviceCondition.NOT_WATCHED)
