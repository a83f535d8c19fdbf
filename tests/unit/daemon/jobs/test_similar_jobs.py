"""Choice of earlier jobs that warm-start a new one."""

import pytest

from autosched.core.state import Job, JobEnd
from autosched.daemon.jobs.similar_jobs import READ, PastJob, choose, latest
from autosched.model import JobSpec, JobState, TaskInfo

SPEC = JobSpec(name="net", model="0" * 64, device="cpu", target="llvm", backend="ansor")


def tasks(*shapes: str, flops: float = 1e6) -> tuple[TaskInfo, ...]:
    return tuple(
        TaskInfo(task=number, name=f"task{number}", workload=f"{number:04x}", shape=shape, flops=flops)
        for number, shape in enumerate(shapes, 1)
    )


CONV, WIDER, DENSE = "conv2d 64x56x56 -> 64, 3x3", "conv2d 96x56x56 -> 64, 3x3", "dense 1x512 -> 1000"
NET = tasks(CONV, DENSE)


def past(job: int, *shapes: str, records: int = 1_000) -> PastJob:
    return PastJob(job, tasks(*shapes), records)


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ([], []),
        ([past(1, "softmax 1x1000")], []),
        ([past(1, CONV, DENSE)], [1]),
        ([past(1, CONV, DENSE), past(2, CONV, DENSE)], [2]),
        ([past(1, CONV, DENSE), past(2, WIDER, DENSE)], [1]),
        ([past(1, CONV), past(2, DENSE)], [2, 1]),
        ([past(1, "conv2d 512x7x7 -> 512, 1x1")], []),
        ([past(1, WIDER)], [1]),
        ([past(1, CONV, DENSE, records=2)], []),
        ([past(1, CONV, DENSE, records=2), past(2, WIDER, DENSE)], [2]),
        ([past(1, CONV, "softmax 1x9"), past(2, CONV, "softmax 1x8"), past(3, DENSE)], [3, 2]),
    ],
    ids=[
        "none", "other operators", "the same", "the latest of equals", "the same before the similar",
        "one for each half", "too far", "near enough", "hardly measured", "well measured before hardly measured",
        "two at most",
    ],
)  # fmt: skip
def test_a_job_learns_from_the_most_similar_jobs(known: list[PastJob], expected: list[int]) -> None:
    assert choose(NET, known) == expected
    assert choose(NET, reversed(known)) == expected


def test_the_task_with_most_work_decides_similarity() -> None:
    large = tasks(CONV, flops=1e9) + tasks(DENSE, flops=1e3)
    assert choose(large, [past(1, CONV), past(2, DENSE)]) == [1]


def test_a_network_without_known_work_learns_from_earlier_jobs_too() -> None:
    assert choose((), [past(1, CONV)]) == []
    assert choose(tasks(CONV, flops=0.0), [past(1, CONV)]) == [1]
    assert choose(NET, [PastJob(1, (), 0)]) == []


def job(number: int, state: JobState = JobState.DONE, **spec: str) -> Job:
    return Job(id=number, spec=JobSpec(**{**{"name": "n", "model": "1" * 64, "device": "cpu", "target": "llvm",
        "backend": "ansor"}, **spec}), submitted_at=0.0,
        end=JobEnd(state, None, 1.0) if state.ended else None)  # fmt: skip


@pytest.mark.parametrize(
    ("other", "teaches"),
    [
        (job(1), True),
        (job(1, JobState.FAILED), True),
        (job(1, JobState.RUNNING), False),
        (job(1, device="npu"), False),
        (job(1, target="cuda"), False),
        (job(1, backend="autotvm"), False),
        (job(1, file="other.onnx"), True),
    ],
)
def test_only_ended_jobs_of_the_same_circumstances_are_learned_from(other: Job, teaches: bool) -> None:
    assert latest(SPEC, [other]) == ([1] if teaches else [])


def test_only_the_latest_jobs_are_read() -> None:
    assert latest(SPEC, [job(number) for number in range(1, 100)]) == list(range(99, 99 - READ, -1))
