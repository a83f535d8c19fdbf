"""A job, its records, steps and evaluation, as a daemon returns them."""

from autosched.backend import Evaluation, Start, Timing
from autosched.model import Failure, JobSpec, Record
from autosched.protocol import JobView, Span, TaskView


def job_view() -> JobView:
    """Job 7 in progress: two tasks, the first with most of the time. Submitted at 1000 s, 100 s ago."""
    tasks = (
        TaskView(1, "conv2", "conv2d 16x55x55 -> 64, 1x1", 2, 1e8, 184, 7, 0.4e-3, 1.2e-3),
        TaskView(2, "conv1", "conv2d 64x55x55 -> 64, 3x3", 4, 2e8, 200, 20, 1.0e-3, 3.1e-3, "build"),
    )
    return JobView(
        job=7, name="squeezenet", target="auto", device="cpu", backend="ansor", state="running",
        reason="building conv1 on host/0", trials=384, trials_total=600, failed=27,
        failures={"build timeout": 21, "wrong result": 6}, estimate_s=4.81e-3, first_estimate_s=14.9e-3, eta_s=250.0,
        submitted_at=1000.0, ended_at=None, now=1100.0, version=3, tasks=tasks,
        skipped=(("reshape", "no arithmetic"), ("concat<T>", "no arithmetic")),
        spec=JobSpec(name="squeezenet", model="0" * 64, options={"population": 64}),
    )  # fmt: skip


def records() -> list[Record]:
    """Four trials of task 1 and two of task 2; one of each failed."""
    latencies: list[tuple[int, float | None]] = [(1, 1.2e-3), (1, None), (1, 0.4e-3), (1, 0.9e-3), (2, None), (2, 1e-3)]
    return [
        Record(
            task=task, number=trial, candidate=b"c%d" % trial, profile_s=1.0,
            latency_s=() if latency is None else (latency,) * 3, failure=None if latency else Failure.BUILD_TIMEOUT,
            detail="" if latency else f"killed <after> 15 s, task {task}",
        )
        for trial, (task, latency) in enumerate(latencies)
    ]  # fmt: skip


def spans() -> list[Span]:
    """Task 1 is profiled twice for 2 s, task 2 once; a step of job 8 lies between; one step ended before job 7 came."""
    return [
        Span(1, 6, 1, "build", ("host/0",), 900.0, 900.0, 950.0, "done"),
        Span(2, 7, 0, "import", ("host/0",), 1000.0, 1000.0, 1010.0, "done"),
        Span(3, 7, 1, "profile", ("cpu0",), 1010.0, 1020.0, 1022.0, "done"),
        Span(4, 8, 1, "profile", ("cpu0",), 1010.0, 1022.0, 1030.0, "done"),
        Span(5, 7, 1, "profile", ("cpu0",), 1020.0, 1030.0, 1032.0, "failed"),
        Span(6, 7, 2, "profile", ("cpu0",), 1020.0, 1040.0, 1042.0, "done"),
        Span(7, 7, 2, "build", ("host/0",), 1090.0, 1090.0, None, ""),
    ]


def timing(name: str, median_s: float, half_s: float = 1e-4) -> Timing:
    """Returns a timing with a symmetric interval."""
    return Timing(name, (median_s,) * 9, median_s, median_s - half_s, median_s + half_s)


def evaluation(tuned_s: float = 0.016, published: str = "tuned") -> Evaluation:
    """Default 0.4 s, ONNX Runtime 4.6 ms."""
    timings = (timing("default", 0.4), timing("tuned", tuned_s), timing("onnxruntime", 0.0046))
    starts = Start("autosched-runtime", 0.012, 0.008, 60 << 20), Start("onnxruntime", 0.11, 0.04, 90 << 20)
    return Evaluation(timings, "ONNX Runtime 1.31.1", True, 4.1e-7, 1e-4, (1,), published, starts=starts)
