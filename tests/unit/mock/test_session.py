"""The backend as a client uses it: stages in threads, killed from another thread."""

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from autosched.backend import Lease, Tuner
from autosched.errors import StepFailed
from autosched.model import Failure, JobSpec, Record
from autosched_backend_mock import MockBackend
from autosched_backend_mock.session import MockSession
from deadlines import DEADLINE_S


@pytest.fixture
def opened(tmp_path: Path) -> Callable[..., MockSession]:
    def open_(seed: int = 0, **options: bool | int | float | str) -> MockSession:
        spec = JobSpec(name="net", model="0" * 64, backend="mock", seed=seed, options=options)
        return MockBackend().open(spec, tmp_path / "net.onnx", tmp_path, tmp_path, 1)

    return open_


def lease(unit: str = "host/0") -> Lease:
    return Lease(stage="build", units=(unit,), cores=(0,), timeout_s=60.0)


def tuner(session: MockSession, task: int = 1, seed: int = 0) -> Tuner:
    network = session.import_network(lease())
    return session.tuner(next(info for info in network.tasks if info.task == task), seed)


def one_round(search: Tuner, count: int = 4) -> int:
    """Plays one round; returns its number of candidates."""
    candidates = search.select(count, lease())
    if candidates:
        search.update(list(search.profile(search.build(candidates, lease()), lease())), lease())
    return len(candidates)


def asleep(session: MockSession, *leases: Lease) -> None:
    """Waits until a stage sleeps under each lease."""
    done = threading.Event()
    for _ in range(int(DEADLINE_S / 0.01)):
        if all(one.step in session._sleeping for one in leases):
            return
        done.wait(0.01)
    raise AssertionError("no stage sleeps")


def test_a_kill_ends_the_stage_of_its_lease_and_no_other(opened: Callable[..., MockSession]) -> None:
    session = opened(build_s=3_600, tasks=2)
    first, second = tuner(session, 1), tuner(session, 2)
    mine, other = lease(), lease()
    assert (mine.units, mine.cores) == (other.units, other.cores)  # where a policy lets steps share their units
    with ThreadPoolExecutor() as pool:
        steps = [pool.submit(first.build, [b"a"], mine), pool.submit(second.build, [b"b"], other)]
        asleep(session, mine, other)
        session.kill(other)
        with pytest.raises(StepFailed, match="build was killed"):
            steps[1].result(DEADLINE_S)
        assert not steps[0].done()
        session.kill()
        with pytest.raises(StepFailed):
            steps[0].result(DEADLINE_S)


def test_a_kill_that_comes_before_the_sleep_is_not_forgotten(opened: Callable[..., MockSession]) -> None:
    session, mine = opened(hang_stage="build"), lease()
    search = tuner(session)
    session.kill(mine)
    with pytest.raises(StepFailed):
        search.build([b"a"], mine)


def test_candidates_fail_where_they_are_asked_to_and_always_the_same_ones(opened: Callable[..., MockSession]) -> None:
    def failures() -> list[Failure | None]:
        search = tuner(opened(fail_ratio=0.4, run_fail_ratio=0.4))
        built = search.build(search.select(100, lease()), lease())
        return [measured.failure for measured in search.profile(built, lease())]

    first = failures()
    assert first == failures()
    assert {failure: first.count(failure) > 10 for failure in set(first)} == {
        Failure.BUILD_ERROR: True, Failure.RUN_ERROR: True, None: True,
    }  # fmt: skip


def test_a_step_that_fails_on_request_says_so_after_its_time(opened: Callable[..., MockSession]) -> None:
    search = tuner(opened(step_fail_ratio=1.0))
    with pytest.raises(StepFailed, match="step_fail_ratio"):
        search.select(4, lease())


def test_an_instance_has_no_candidates_after_its_last_round(opened: Callable[..., MockSession]) -> None:
    session = opened(instance="standard", instance_name="hom-N2-C1-M1-s1", time_scale=1e-6)
    search = tuner(session)
    assert [one_round(search, 1) for _ in range(12)] == [1] * 10 + [0, 0]


def test_a_resumed_tuner_goes_on_in_the_round_that_its_records_tell(opened: Callable[..., MockSession]) -> None:
    session = opened(instance="standard", instance_name="hom-N2-C1-M1-s1", time_scale=1e-6)
    search = tuner(session)
    search.restore([Record(task=1, number=trial, candidate=bytes([trial]), latency_s=(1e-3,)) for trial in range(7)])
    assert [one_round(search, 1) for _ in range(4)] == [1, 1, 1, 0]


def test_what_is_measured_again_makes_no_round(opened: Callable[..., MockSession]) -> None:
    search = tuner(opened(instance="standard", instance_name="hom-N2-C1-M1-s1", time_scale=1e-6))
    for _ in range(10):
        candidates = search.select(1, lease())
        measured = list(search.profile(search.build(candidates, lease()), lease()))
        search.update(measured, lease())
        search.update(list(search.profile(search.build(candidates, lease()), lease())), lease())
    assert not search.select(1, lease())


def test_each_stage_leaves_a_line(opened: Callable[..., MockSession], tmp_path: Path) -> None:
    log = tmp_path / "steps.log"
    one_round(tuner(opened(log=str(log))))
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(line["task"], line["stage"]) for line in lines] == [
        (0, "import"), (1, "select"), (1, "build"), (1, "profile"), (1, "update"),
    ]  # fmt: skip
    times = [at for line in lines for at in (line["began_at"], line["ended_at"])]
    assert times == sorted(times)
