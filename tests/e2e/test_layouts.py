"""A whole job in this process for layouts other than the model's own."""

import os
from pathlib import Path

import onnx
import pytest

from autosched import backend
from autosched.backend import Evaluation, Lease, Network
from autosched.model import JobSpec, Record, TaskInfo
from nets import small_net

pytest.importorskip("tvm")
pytestmark = pytest.mark.tvm

CORES = sorted(os.sched_getaffinity(0))
QUICK: dict[str, bool | int | float | str] = {
    "population_size": 16, "init_min_unmeasured": 4, "genetic_num_iters": 1, "batch": 2, "min_repeat_ms": 1.0,
    "trials_per_task": 10,
}  # fmt: skip


def lane(stage: str) -> Lease:
    return Lease(stage, ("host/0",), (CORES[-1],), 300.0)


def device(stage: str) -> Lease:
    return Lease(stage, ("cpu0",), (CORES[0],), 300.0)


def tuned(layout: str, folder: Path) -> tuple[Network, list[Record], Evaluation]:
    """Measures two candidates for each convolution."""
    onnx.save(small_net(), folder / "net.onnx")
    spec = JobSpec(name="net", model="0" * 64, options={**QUICK, "layout": layout})
    session = backend.load("ansor").open(spec, folder / "net.onnx", folder / "work", folder / "out", 1)
    try:
        network = session.import_network(lane("import"))
        records: list[Record] = []
        for info in convolutions(network):
            tuner = session.tuner(info, seed=1)
            candidates = tuner.select(2, lane("select"))
            measured = list(tuner.profile(tuner.build(candidates, lane("build")), device("profile")))
            tuner.update(measured, lane("update"))
            records += [
                Record(
                    task=info.task, number=len(records) + n, candidate=m.candidate, latency_s=m.latency_s,
                    failure=m.failure, detail=m.detail,
                )
                for n, m in enumerate(measured)
            ]  # fmt: skip
        session.compile(records, lane("compile"))
        return network, records, session.evaluate(device("evaluate"))
    finally:
        session.kill()


def convolutions(network: Network) -> list[TaskInfo]:
    return [info for info in network.tasks if "conv2d" in info.name]


def test_blocked_convolutions_are_tuned_and_compute_the_same(tmp_path: Path) -> None:
    network, records, evaluation = tuned("nchwc", tmp_path)
    assert ["NCHW8c" in info.shape for info in convolutions(network)] == [True]
    assert any(record.best_s for record in records if record.task == convolutions(network)[0].task)
    assert evaluation.outputs_equal


def test_layout_auto_tunes_both_layouts_and_reports_its_choice(tmp_path: Path) -> None:
    network, _, evaluation = tuned("auto", tmp_path)
    offered = convolutions(network)  # where a vector has more than eight lanes, in NHWC too
    assert {"NCHW8c" in info.shape for info in offered} == {False, True}
    assert len({group for info in offered for group in info.groups}) == 1, "they compete"
    groups = {group for info in network.tasks for group in info.groups}
    assert network.default_trials == 10 * (len(groups) + sum(not info.groups for info in network.tasks))
    assert any(note.startswith("layouts: 1 convolutions in ") for note in evaluation.notes), evaluation.notes
    assert evaluation.outputs_equal
