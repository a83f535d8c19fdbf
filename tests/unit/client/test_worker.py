"""Rounds of a task between its stages, and how trials are numbered."""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import cast

import pytest

from autosched.backend import Built, Lease, Measured, Network, Session
from autosched.client.worker import Worker
from autosched.errors import StepFailed
from autosched.model import JobSpec, Record, TaskInfo

LEASE = Lease("any", ("cpu0",), (), 60.0)
WAIT_S = 0.5


class FakeTuner:
    """Two candidates that measure 1 s; its update fails."""

    def select(self, count: int, lease: Lease) -> Sequence[bytes]:
        return [b"a", b"b"][:count]

    def build(self, candidates: Sequence[bytes], lease: Lease) -> Sequence[Built]:
        return [Built(candidate) for candidate in candidates]

    def profile(self, built: Sequence[Built], lease: Lease) -> Iterator[Measured]:
        yield from (Measured(one.candidate, (1.0,)) for one in built)

    def update(self, measured: Sequence[Measured], lease: Lease) -> None:
        raise StepFailed("no luck")


class FakeSession:
    def import_network(self, lease: Lease) -> Network:
        return Network(tasks=tuple(TaskInfo(task=i, name=f"op{i}", workload=f"w{i}") for i in (1, 2)))

    def tuner(self, task: TaskInfo, seed: int) -> FakeTuner:
        return FakeTuner()


def made(keep: Callable[[Record], None], count: int) -> Worker:
    """A worker whose two tasks have `count` candidates each, built."""
    worker = Worker(cast(Session, FakeSession()), JobSpec(name="net", model="0" * 64), keep)
    worker.import_network(LEASE, [])
    for task in (1, 2):
        worker.select(task, count, LEASE)
        worker.build(task, LEASE)
    return worker


def test_records_of_two_devices_are_handed_on_in_the_order_of_their_numbers() -> None:
    handed: list[int] = []

    def keep(record: Record) -> None:
        if record.task == 1:  # held up here, while the other device has a result as well
            other.start()
            other.join(WAIT_S)
        handed.append(record.trial)

    worker = made(keep, 1)
    other = threading.Thread(target=worker.profile, args=(2, LEASE))
    worker.profile(1, LEASE)
    other.join()
    assert handed == [0, 1]


def test_a_failed_update_still_tells_how_many_trials_were_measured() -> None:
    worker = made(lambda _: None, 2)
    worker.profile(1, LEASE)
    with pytest.raises(StepFailed):
        worker.update(1, LEASE)
    assert worker.give_up(1) == 2
