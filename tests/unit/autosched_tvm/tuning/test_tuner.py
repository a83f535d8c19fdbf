"""Files of an interrupted round of the ansor backend, and candidates from earlier jobs. The kernels are fake, so TVM is
not needed."""

import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from autosched.backend import Built, Lease, Measured
from autosched.errors import DeviceLost, StepFailed
from autosched.model import Failure, Record, TaskInfo
from autosched.process.forked_workers import Killed, Raised, TimedOut
from autosched_tvm.tuning.job_measurements import JobMeasurements
from autosched_tvm.tuning.kernel_measurer import KernelMeasurer
from autosched_tvm.tuning.search_method import Search
from autosched_tvm.tuning.tuner import TvmTuner
from autosched_tvm.worker_messages import UNTUNED
from unit.autosched_tvm.methods import FakeSearch

LEASE = Lease("any", ("host/0",), (0,), 60.0)
TASK = TaskInfo(task=1, name="op", workload="0")


class FakeKernels:
    """Builds by writing a file; raises the contents of candidates."""

    def __init__(self, folder: Path) -> None:
        self.artifacts = folder
        self.options = SimpleNamespace(build_timeout_s=1.0, run_timeout_s=1.0)
        self.errors: dict[bytes, Exception] = {}

    def reference(self, task: TaskInfo, lease: Lease) -> None:
        pass

    def build(self, task: TaskInfo, candidate: bytes, artifact: Path, lease: Lease) -> str:
        artifact.with_name(f"{artifact.name}.o").touch()
        if error := self.errors.get(candidate):
            raise error
        artifact.with_name(f"{artifact.name}.o").rename(artifact)
        return candidate.hex()

    def profile(self, task: TaskInfo, artifact: Path, best_s: float | None, lease: Lease) -> tuple[float, ...]:
        raise Killed("killed")


def tuner_of(kernels: FakeKernels, experience: JobMeasurements | None = None) -> TvmTuner:
    def begin(lease: Lease) -> Search:
        raise AssertionError("these tests search for nothing")

    return TvmTuner(TASK, cast(KernelMeasurer, kernels), experience or JobMeasurements(), begin)


def made(folder: Path, **errors: Exception) -> TvmTuner:
    kernels = FakeKernels(folder)
    kernels.errors = {name.encode(): error for name, error in errors.items()}
    return tuner_of(kernels)


def test_a_candidate_that_fails_leaves_no_object_file(tmp_path: Path) -> None:
    built = made(tmp_path, b=TimedOut("late")).build([b"a", b"b"], LEASE)
    assert [one.failure for one in built] == [None, Failure.BUILD_TIMEOUT]
    assert list(tmp_path.iterdir()) == [built[0].artifact]


def test_a_lane_of_several_cores_builds_on_all_of_them(tmp_path: Path) -> None:
    together = threading.Barrier(3, timeout=60.0)
    cores: list[tuple[int, ...]] = []

    class Meets(FakeKernels):
        def build(self, task: TaskInfo, candidate: bytes, artifact: Path, lease: Lease) -> str:
            together.wait()
            cores.append(lease.cores)
            artifact.touch()
            return ""

    names = [b"a", b"b", b"c", b"d", b"e", b"f"]
    built = tuner_of(Meets(tmp_path)).build(names, Lease("any", ("cpu0",), (4, 5, 6), 60.0))
    assert [one.candidate for one in built] == names
    assert sorted(cores) == [(4,), (4,), (5,), (5,), (6,), (6,)]


@pytest.mark.parametrize("error", [Killed("killed"), Raised("OSError", "No space left on device")])
def test_an_interrupted_build_leaves_no_files(error: Exception, tmp_path: Path) -> None:
    with pytest.raises(StepFailed):
        made(tmp_path, b=error).build([b"a", b"b"], LEASE)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_measurement_leaves_no_files(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a.so", "b.so")]
    for file in files:
        file.touch()
    with pytest.raises(StepFailed):
        list(made(tmp_path).profile([Built(file.name.encode(), file) for file in files], LEASE))
    assert list(tmp_path.iterdir()) == []


def test_candidates_not_measured_when_a_board_was_lost_stay_for_the_next_step(tmp_path: Path) -> None:
    class Loses(FakeKernels):
        def profile(self, task: TaskInfo, artifact: Path, best_s: float | None, lease: Lease) -> tuple[float, ...]:
            if artifact.name == "b.so":
                raise DeviceLost("the session with the board was lost")
            return ()

        def compare(self, task: TaskInfo, artifacts: Sequence[Path], best_s: float | None, lease: Lease) -> object:
            raise DeviceLost("the session with the board was lost")

    files = [tmp_path / name for name in ("a.so", "b.so", "c.so")]
    for file in files:
        file.touch()
    builds, tuner = [Built(file.name.encode(), file) for file in files], tuner_of(Loses(tmp_path))
    with pytest.raises(DeviceLost, match="was lost") as lost:
        list(tuner.profile(builds, LEASE))
    assert lost.value.candidate == b"b.so"
    assert sorted(tmp_path.iterdir()) == files[1:]
    with pytest.raises(DeviceLost) as lost:
        list(tuner.compare(builds[1:], LEASE))
    assert lost.value.candidate is None
    assert sorted(tmp_path.iterdir()) == files[1:]


def test_a_candidate_that_is_to_be_measured_again_keeps_its_kernel(tmp_path: Path) -> None:
    """The slowest candidate comes first and is the fastest now, which noise or a disturbance may cause."""
    latency_s = {b"d": 4.0, b"a": 1.0, b"b": 2.0, b"c": 3.0}

    class Measures(FakeKernels):
        def build(self, task: TaskInfo, candidate: bytes, artifact: Path, lease: Lease) -> str:
            artifact.write_bytes(candidate)
            return candidate.hex()

        def profile(self, task: TaskInfo, artifact: Path, best_s: float | None, lease: Lease) -> tuple[float, ...]:
            return (latency_s[artifact.read_bytes()],)

    tuner = tuner_of(Measures(tmp_path))
    for changing_s in (4.0, 0.5):
        latency_s[b"d"] = changing_s
        built = tuner.build(list(latency_s), LEASE)
        assert [one.code for one in built] == [candidate.hex() for candidate in latency_s]
        measured = list(tuner.profile(built, LEASE))
        assert [one.latency_s for one in measured] == [(s,) for s in latency_s.values()]
        left = {path.read_bytes() for path in tmp_path.iterdir()}
        assert left == set(sorted(latency_s, key=lambda candidate: latency_s[candidate])[:3])


def test_measurements_of_earlier_clients_reach_all_tasks_before_a_search_begins(tmp_path: Path) -> None:
    experience = JobMeasurements()
    records = [
        Record(task=1, number=0, candidate=b"a", latency_s=(3.0, 1.0, 2.0)),
        Record(task=1, number=1, candidate=b"b"),
    ]
    tuner_of(FakeKernels(tmp_path), experience).restore(records)
    assert experience.elsewhere(2) == [{b"a": 2.0}]
    assert experience.elsewhere(1) == []
    experience.tell(1, [(b"a", (4.0,))])
    assert experience.elsewhere(2) == [{b"a": 4.0}], "the last measurement of a candidate counts"


def test_the_best_of_earlier_jobs_for_the_same_workload_are_tried_first() -> None:
    experience = JobMeasurements()
    for numbers in ((5, 3, 8, 1), (2, 9)):
        experience.tell_earlier(TASK.workload, [(f"e{number}".encode(), (float(number),)) for number in numbers])
    experience.tell_earlier(TASK.workload, [(b"failed", ())])
    experience.tell_earlier("another", [(b"e0", (0.5,))])
    assert experience.heard(TASK.workload) == [b"e1", b"e2", b"e3", b"e5"]
    assert {b"e0": 0.5} in experience.elsewhere(TASK.task), "the others teach as tasks of one job do"

    def begun(records: Sequence[Record]) -> TvmTuner:
        made = TvmTuner(TASK, cast(KernelMeasurer, None), experience, lambda _: FakeSearch("own"))
        made.restore(records)
        return made

    tuner = begun([])
    first = tuner.select(4, LEASE)
    assert first == tuner.select(4, LEASE) == [UNTUNED, b"e1", b"e2", b"e3"]
    tuner.update([Measured(one, (1.0,)) for one in first[:3]] + [Measured(first[3])], LEASE)
    second = tuner.select(3, LEASE)
    assert second[0] == b"e5"
    assert len(set(second)) == 3
    assert second[1].startswith(b'[["own'), "then the search says"
    again = begun([Record(task=1, number=at, candidate=one, latency_s=(1.0,)) for at, one in enumerate(first)])
    assert again.select(3, LEASE)[0] == b"e5", "a client that takes over goes on behind what was measured"


def test_the_schedule_by_rule_is_the_first_trial_and_not_learned_from() -> None:
    experience, search = JobMeasurements(), FakeSearch("own")

    def begun(records: Sequence[Record]) -> TvmTuner:
        made = TvmTuner(TASK, cast(KernelMeasurer, None), experience, lambda _: search)
        made.restore(records)
        return made

    tuner = begun([])
    assert tuner.select(1, LEASE) == [UNTUNED]
    first = tuner.select(3, LEASE)
    assert (len(first), first[0]) == (3, UNTUNED)
    tuner.update([Measured(one, (1.0,)) for one in first], LEASE)
    assert UNTUNED not in tuner.select(3, LEASE)
    records = [Record(task=1, number=at, candidate=one, latency_s=(1.0,)) for at, one in enumerate(first)]
    assert UNTUNED not in begun(records).select(3, LEASE), "a client that takes over does not measure it again"
    assert UNTUNED not in {candidate for candidate, _ in search.told}
    assert all(UNTUNED not in known for known in experience.elsewhere(2))


def test_a_candidate_with_two_sources_is_in_a_round_once() -> None:
    experience, search = JobMeasurements(), FakeSearch("own")
    same = search.select(1)[0]
    search.number, search.left = 0, 1_000
    experience.tell_earlier(TASK.workload, [(same, (1.0,))])
    tuner = TvmTuner(TASK, cast(KernelMeasurer, None), experience, lambda _: search)
    chosen = tuner.select(4, LEASE)
    assert chosen.count(same) == 1
