"""The autotvm backend without daemon and client: a whole job in this process."""

import json
import os
from pathlib import Path

import onnx
import pytest

from autosched.backend import Lease, Network
from autosched.model import JobSpec, Record, TaskInfo
from nets import small_net

pytest.importorskip("tvm")
pytestmark = pytest.mark.tvm

from autosched.tvm.session import TvmSession  # noqa: E402
from autosched_backend_autotvm import AutoTvmBackend  # noqa: E402

CORES = sorted(os.sched_getaffinity(0))
QUICK: dict[str, bool | int | float | str] = {"min_repeat_ms": 2.0, "num_warmup_samples": 4, "repeat": 2}


def lease(stage: str) -> Lease:
    return Lease(stage, ("cpu0",), (CORES[0],), 300.0)


def tuned(session: TvmSession, info: TaskInfo, rounds: int) -> list[Record]:
    tuner = session.tuner(info, seed=1)
    records: list[Record] = []
    for _ in range(rounds):
        measured = list(tuner.profile(tuner.build(tuner.select(4, lease("select")), lease("build")), lease("profile")))
        tuner.update(measured, lease("update"))
        records += [
            Record(task=info.task, trial=100 * info.task + at, candidate=m.candidate, latency_s=m.latency_s,
                   failure=m.failure, detail=m.detail)
            for at, m in enumerate(measured, len(records))
        ]  # fmt: skip
    return records


def templates(records: list[Record]) -> set[str]:
    """By which the records were made."""
    remembered = (json.loads(record.candidate)[2:] for record in records)
    return {one[0].get("template", "") if one else "" for one in remembered}


def test_templates_where_there_are_some_and_another_backend_where_there_are_none(tmp_path: Path) -> None:
    onnx.save(small_net(), tmp_path / "net.onnx")
    job = JobSpec(name="net", model="0" * 64, options=QUICK)
    session = AutoTvmBackend().open(job, tmp_path / "net.onnx", tmp_path / "work", tmp_path / "out", 1)
    assert isinstance(session, TvmSession)
    network: Network = session.import_network(lease("import"))
    records = {info.name: tuned(session, info, rounds=2) for info in network.tasks}
    made = {name: templates(found) for name, found in records.items()}
    passed_on = [name for name, kinds in made.items() if kinds == {""}]
    assert any("conv2d" in kind for kinds in made.values() for kind in kinds), made
    assert passed_on, "nothing sums up in pooling as templates want it"
    whole = [record for found in records.values() for record in found]
    assert sum(record.failure is None for record in whole) > 0.8 * len(whole)

    convolution = next(info for info in network.tasks if any("conv2d" in kind for kind in made[info.name]))
    going_on = session.tuner(convolution, seed=1)
    going_on.restore(records[convolution.name])
    assert not {r.candidate for r in records[convolution.name]} & set(going_on.select(4, lease("select")))

    session.compile(whole, lease("compile"))
    evaluation = session.evaluate(lease("evaluate"))
    session.kill()
    assert evaluation.outputs_equal, evaluation
    assert all(any(note.startswith(f"{name}: ") and "ansor" in note for note in evaluation.notes) for name in passed_on)
