"""Several steps share the builds of a round."""

import random
from collections.abc import Sequence

import pytest

from autosched.backend import Built, Measured
from autosched.client.round_work import RoundWork, Timed


class Records:
    """Records of all steps, in their order."""

    def __init__(self) -> None:
        self.made: list[tuple[bytes, bool]] = []

    def keep(self, measured: Measured, *, elsewhere: bool = False) -> int:
        self.made.append((measured.candidate, elsewhere))
        return len(self.made) - 1


def work(built: Sequence[Built], *, devices: int = 2, copies: bool = True, **known: float) -> RoundWork:
    timed = {code: Timed((seconds,), "job 7") for code, seconds in known.items()}
    return RoundWork(built, timed.get, devices=devices, copies=copies)


def plain(count: int) -> list[Built]:
    return [Built(bytes([number])) for number in range(count)]


def coded(*codes: str) -> list[Built]:
    return [Built(bytes([number]), code=code) for number, code in enumerate(codes)]


def names(built: Sequence[Built]) -> list[int]:
    return [one.candidate[0] for one in built]


def test_a_step_takes_half_of_its_even_share() -> None:
    one, records = work(plain(16)), Records()
    sizes = [len(one.take(number % 2, records.keep)) for number in range(9)]
    assert sizes == [4, 3, 3, 2, 1, 1, 1, 1, 0]
    one = work(plain(16), devices=8)
    assert len(one.take(1, records.keep)) == 1, "seven more may come"
    one = work(plain(16), devices=2)
    assert [len(one.take(step, records.keep)) for step in range(5)] == [4, 3, 2, 1, 1], "more have come than were known"


def test_without_other_devices_one_takes_all() -> None:
    one, records = work(plain(5), devices=1), Records()
    assert names(one.take(1, records.keep)) == [0, 1, 2, 3, 4]
    assert one.take(1, records.keep) == []


def test_a_copy_belongs_to_the_step_that_measured_the_code() -> None:
    one, records = work(coded("a", "b", "a", "a")), Records()
    (first,) = one.take(1, records.keep)
    (second,) = one.take(2, records.keep)
    assert (first.code, second.code) == ("a", "b")
    one.measured(2, second, Measured(second.candidate, (2.0,)), records.keep)
    assert one.take(2, records.keep) == [], "the copies may still have to be measured: they wait for the first step"
    one.measured(1, first, Measured(first.candidate, (1.0,)), records.keep)
    assert one.take(2, records.keep) == []
    assert one.take(1, records.keep) == []
    assert records.made == [(b"\1", False), (b"\0", False), (b"\2", False), (b"\3", False)]


def test_a_copy_of_failed_code_is_measured() -> None:
    one, records = work(coded("a", "a"), devices=1), Records()
    (first,) = one.take(1, records.keep)
    one.measured(1, first, Measured(first.candidate), records.keep)
    assert names(one.take(1, records.keep)) == [1]


def test_copies_of_a_lost_step_are_taken_over() -> None:
    one, records = work(coded("a", "b", "a")), Records()
    (first,) = one.take(1, records.keep)
    one.measured(1, first, Measured(first.candidate, (1.0,)), records.keep)
    one.leave(1, [])
    assert names(one.take(2, records.keep)) == [1]
    assert records.made == [(b"\0", False), (b"\2", True)], "what disturbs the second step does not concern it"


def test_known_code_is_measured_only_in_remeasurements() -> None:
    records = Records()
    assert names(work(coded("a", "b"), a=1.0).take(1, records.keep)) == [1]
    assert records.made == [(b"\0", True)]
    again = work(coded("a", "a", "b"), devices=1, copies=False, a=1.0)
    assert names(again.take(1, records.keep)) == [0, 1, 2]


@pytest.mark.parametrize("seed", range(30))
def test_each_build_is_measured_once_when_steps_fail(seed: int) -> None:
    rng = random.Random(seed)
    codes = [rng.choice(["", "a", "b", "c", "d"]) for _ in range(rng.randint(1, 20))]
    one, records, taken = work(coded(*codes)), Records(), dict[int, list[Built]]()
    failures, running = 2, {1, 2, 3}
    for number in range(10_000):
        if not running:
            break
        step = rng.choice(sorted(running))
        if not taken.get(step):
            taken[step] = one.take(step, records.keep)
            if not taken[step]:
                running.discard(step)
                one.leave(step, [])
        elif failures and len(running) > 1 and rng.random() < 0.2:
            failures -= 1
            one.leave(step, taken.pop(step))
            running.discard(step)
        else:
            built = taken[step].pop(0)
            latency_s = (1.0,) if rng.random() < 0.7 else ()
            one.measured(step, built, Measured(built.candidate, latency_s), records.keep)
        if not running and number < 9_000 and len(records.made) < len(codes):
            running = {10 + number}  # the stage is repeated
    assert sorted(candidate[0] for candidate, _ in records.made) == list(range(len(codes)))
