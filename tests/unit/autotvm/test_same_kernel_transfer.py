"""The same convolution with and without an epilogue, as two tasks of one job."""

import json
import zlib
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import pytest

pytest.importorskip("tvm")
pytestmark = pytest.mark.tvm

from autosched.backend import Lease, Measured  # noqa: E402
from autosched.model import Record, TaskInfo  # noqa: E402
from autosched_backend_autotvm import template_matching  # noqa: E402
from autosched_backend_autotvm.options import Options  # noqa: E402
from autosched_backend_autotvm.same_kernel_transfer import BEST_OF_EACH, kernel_of  # noqa: E402
from autosched_backend_autotvm.search_method import AutoTvmMethod  # noqa: E402
from autosched_tvm.tuning.job_measurements import JobMeasurements  # noqa: E402
from autosched_tvm.tuning.kernel_measurer import KernelMeasurer  # noqa: E402
from autosched_tvm.tuning.search_method import SearchContext  # noqa: E402
from autosched_tvm.tuning.tuner import TvmTuner  # noqa: E402
from autosched_tvm.worker_messages import UNTUNED  # noqa: E402
from unit.autotvm.kernels import CPU, blocked  # noqa: E402

LEASE = Lease("any", ("host/0",), (0,), 60.0)
WORKLOADS = blocked(64, 64, 14), blocked(64, 64, 14, epilogue=True), blocked(64, 64, 10)
PLAIN, FUSED, SMALLER = (TaskInfo(task=at, name="conv", workload=f"{at:016x}") for at in (1, 2, 3))


class Job:
    """One client of a job: an AutoTVM method behind real tuners."""

    def __init__(self, **options: Any) -> None:
        self._method = AutoTvmMethod(Options(**options))
        self._experience = JobMeasurements()

    def tuner(self, task: TaskInfo, records: Sequence[Record] = ()) -> TvmTuner:
        elsewhere = partial(self._experience.elsewhere, task.task)
        site = SearchContext(task, WORKLOADS[task.task - 1], CPU, 7 + task.task, 1, elsewhere)
        nothing_is_built = cast(KernelMeasurer, None)
        tuner = TvmTuner(task, nothing_is_built, self._experience, lambda _: self._method.search(site))
        by_rule = Record(
            task=task.task, number=0, candidate=UNTUNED, latency_s=(1.0,)
        )  # candidates that are tried before a search's own
        tuner.restore([by_rule, *records])
        return tuner


def config_of(candidate: bytes) -> dict[str, Any]:
    config: dict[str, Any] = json.loads(candidate)[2]["config"]
    return config


def configs(candidates: Sequence[bytes]) -> list[dict[str, Any]]:
    return [config_of(candidate) for candidate in candidates]


def latency_s(candidate: bytes) -> tuple[float, ...]:
    """Returns a latency that depends on the configuration only, whatever is fused."""
    return (1e-3 * (1 + zlib.crc32(json.dumps(config_of(candidate)).encode()) % 997),)


def tune(tuner: TvmTuner, rounds: int = 1, size: int = 8) -> list[bytes]:
    """Returns all candidates, in the order of selection."""
    found: list[bytes] = []
    for _ in range(rounds):
        chosen = tuner.select(size, LEASE)
        tuner.update([Measured(candidate, latency_s(candidate)) for candidate in chosen], LEASE)
        found += chosen
    return found


def recorded(task: TaskInfo, candidates: Sequence[bytes]) -> list[Record]:
    return [
        Record(task=task.task, number=trial, candidate=candidate, latency_s=latency_s(candidate))
        for trial, candidate in enumerate(candidates)
    ]


def best(candidates: Sequence[bytes], count: int = BEST_OF_EACH) -> list[dict[str, Any]]:
    return configs(sorted(candidates, key=latency_s)[:count])


def test_tasks_with_the_same_kernel_are_siblings() -> None:
    found = [template_matching.find(workload, CPU).template for workload in WORKLOADS]
    plain, fused, smaller = (kernel_of(template.nest) for template in found if template is not None)
    assert plain == fused != smaller


def test_the_first_rounds_begin_with_the_best_of_a_sibling() -> None:
    job = Job()
    first = tune(job.tuner(FUSED), rounds=2)
    tuner = job.tuner(PLAIN)
    own, following = configs(tune(tuner)), configs(tune(tuner))
    assert own[-2:] == best(first, 2), "a quarter of a round, and last in it"
    assert following[-1] == best(first)[2]
    alone = configs(Job(transfer=False).tuner(PLAIN).select(8, LEASE))
    assert not all(config in alone for config in best(first, 2)), "it would not have come to both by itself"


def test_transfer_keeps_the_first_proposals_of_the_tuner() -> None:
    """An interrupted round is finished as it was begun, although a sibling has continued."""
    job, alone = Job(), Job()
    before = alone.tuner(PLAIN).select(8, LEASE)
    tune(job.tuner(FUSED))
    chosen = job.tuner(PLAIN).select(8, LEASE)
    assert chosen[:6] == [one for one in before if config_of(one) not in configs(chosen[6:])][:6]


def test_a_replaced_client_selects_what_the_first_would_have() -> None:
    job = Job()
    fused, plain = job.tuner(FUSED), job.tuner(PLAIN)
    of_fused, of_plain = tune(fused, 2), tune(plain)
    expected = plain.select(8, LEASE)
    assert config_of(expected[-1]) in best(of_fused)
    for order in ((PLAIN, FUSED), (FUSED, PLAIN)):
        again, measured = Job(), {PLAIN.task: of_plain, FUSED.task: of_fused}
        restored = {info.task: again.tuner(info, recorded(info, measured[info.task])) for info in order}
        assert restored[PLAIN.task].select(8, LEASE) == expected


@pytest.mark.parametrize("options", [{"transfer": False}, {"tuner": "random"}, {"knobs": '{"tile_h": [1]}'}])
def test_configurations_outside_a_restricted_space_are_not_transferred(options: dict[str, Any]) -> None:
    whole = tune(Job().tuner(FUSED), rounds=2)
    tall = [candidate for candidate in whole if config_of(candidate)["tile_h"] != 1]
    job, alone = Job(**options), Job(**options)
    job.tuner(FUSED, recorded(FUSED, tall))
    assert job.tuner(PLAIN).select(8, LEASE) == alone.tuner(PLAIN).select(8, LEASE)


def test_other_kernels_and_failures_are_no_example() -> None:
    job, alone = Job(), Job()
    tune(job.tuner(SMALLER))
    failed = [Measured(candidate, ()) for candidate in job.tuner(FUSED).select(8, LEASE)]
    job.tuner(FUSED).update(failed, LEASE)
    job.tuner(FUSED).update([Measured(b"of another backend", (1e-9,))], LEASE)
    assert job.tuner(PLAIN).select(8, LEASE) == alone.tuner(PLAIN).select(8, LEASE)
