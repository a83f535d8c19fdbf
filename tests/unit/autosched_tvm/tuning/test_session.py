"""Errors of a job on TVM whose search cannot begin."""

import threading
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("tvm")
pytestmark = pytest.mark.tvm

from autosched.backend import Lease  # noqa: E402
from autosched.errors import StepFailed  # noqa: E402
from autosched.model import JobSpec, TaskInfo  # noqa: E402
from autosched.process.forked_workers import Workers  # noqa: E402
from autosched_tvm.compile import task_extraction  # noqa: E402
from autosched_tvm.tuning.job_measurements import JobMeasurements  # noqa: E402
from autosched_tvm.tuning.kernel_measurer import KernelMeasurer  # noqa: E402
from autosched_tvm.tuning.options import Options  # noqa: E402
from autosched_tvm.tuning.session import TvmSession, with_most_arithmetic  # noqa: E402
from small import matmul  # noqa: E402
from unit.autosched_tvm.methods import FakeMethod, FakeSearch  # noqa: E402

LEASE = Lease("select", ("host/0",), (0,), 60.0)


def test_a_task_that_no_method_can_tune_fails_its_step_with_the_reason(tmp_path: Path) -> None:
    """The job's other tasks continue; test_job_plan.py covers a job without any."""
    site = matmul(1)
    session: Any = TvmSession.__new__(TvmSession)
    session._rankers = {}
    session.target, session._job = '{"kind": "llvm"}', JobSpec(name="n", model="0" * 64)
    session.kernels = KernelMeasurer(cast(Workers, None), tmp_path, tmp_path, session.target, Options())
    session._method_lock, session._method, session.experience = threading.Lock(), None, JobMeasurements()
    session._make_method = lambda threads: FakeMethod(FakeSearch("a"), ["conv", "softmax"])
    task_extraction.save(site.workload, tmp_path / "1.json")
    with pytest.raises(StepFailed, match="backend autotvm cannot tune matmul: no template for matmul"):
        session.search(site.info, 1, LEASE)


@pytest.mark.parametrize(("name", "stem"), [("net", "net"), ("report", "report_"), ("evaluation", "evaluation_")])
def test_the_side_file_of_a_network_has_its_name(name: str, stem: str) -> None:
    session: Any = TvmSession.__new__(TvmSession)
    session._rankers = {}
    session._job = JobSpec(name=name, model="0" * 64)
    assert session._stem == stem


def test_tasks_with_most_arithmetic_are_the_fewest_that_reach_the_share() -> None:
    flops = {1: 50.0, 2: 10.0, 3: 300.0, 4: 40.0}
    calls = {1: 1, 2: 60, 3: 1, 4: 1}  # 990 operations in one inference, of which tasks 2 and 3 make 900
    tasks = [TaskInfo(task=task, name="n", workload="w", weight=calls[task], flops=flops[task]) for task in flops]
    assert with_most_arithmetic(tasks, 0.5) == {2}
    assert with_most_arithmetic(tasks, 0.9) == {2, 3}
    assert with_most_arithmetic(tasks, 0.95) == {1, 2, 3}
    assert with_most_arithmetic(tasks, 1.0) == {1, 2, 3, 4}
    assert with_most_arithmetic([], 0.9) == frozenset()


def test_only_tasks_with_most_arithmetic_have_first_candidates() -> None:
    session: Any = TvmSession.__new__(TvmSession)
    session._rankers, session._ranked_tasks = {"conv": b"ranker"}, frozenset([2])
    session.ranked = lambda task, lease, count: [b"best"]
    asked = [TaskInfo(task=task, name="n", workload="w") for task in (1, 2)]
    assert [session.first(task, LEASE) for task in asked] == [(), [b"best"]]
    session._rankers = {}
    assert session.first(asked[1], LEASE) == ()


class FakeWorkers:
    """Returns where a call would run."""

    def call(self, role: str, *_arguments: Any, timeout_s: float) -> str:
        return f"the worker {role}"

    def once(self, *_arguments: Any, timeout_s: float) -> str:
        return "a process of its own"


@pytest.mark.parametrize(
    ("trials", "where"), [(0, "the worker network"), (8, "a process of its own"), (None, "a process of its own")]
)
def test_only_a_job_without_a_search_compiles_where_it_imported(trials: int | None, where: str) -> None:
    session: Any = TvmSession.__new__(TvmSession)
    session._job, session._workers = JobSpec(name="n", model="0" * 64, trials=trials), FakeWorkers()
    assert session._of_network(LEASE, "module:function", timeout_s=1.0) == where
