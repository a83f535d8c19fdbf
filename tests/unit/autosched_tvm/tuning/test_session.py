"""Errors of a job on TVM whose search cannot begin."""

import threading
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("tvm")
pytestmark = pytest.mark.tvm

from autosched.backend import Lease  # noqa: E402
from autosched.errors import StepFailed  # noqa: E402
from autosched.model import JobSpec  # noqa: E402
from autosched.process.forked_workers import Workers  # noqa: E402
from autosched_tvm.compile import task_extraction  # noqa: E402
from autosched_tvm.tuning.job_measurements import JobMeasurements  # noqa: E402
from autosched_tvm.tuning.kernel_measurer import KernelMeasurer  # noqa: E402
from autosched_tvm.tuning.options import Options  # noqa: E402
from autosched_tvm.tuning.session import TvmSession  # noqa: E402
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
