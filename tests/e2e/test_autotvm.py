"""The autotvm backend without daemon and client: a whole job in this process."""

import json
import os
from pathlib import Path
from typing import Any

import onnx
import pytest

from autosched.backend import Earlier, Lease, Network
from autosched.errors import RequestError
from autosched.model import JobSpec, Record, TaskInfo
from nets import conv_net, small_net

pytest.importorskip("tvm")
pytestmark = pytest.mark.tvm

from autosched_backend_ansor import AnsorBackend  # noqa: E402
from autosched_backend_autotvm import AutoTvmBackend  # noqa: E402
from autosched_tvm.tuning.job_measurements import HEARD_MAX  # noqa: E402
from autosched_tvm.tuning.session import TvmSession  # noqa: E402
from autosched_tvm.tuning.tvm_backend import TvmBackend  # noqa: E402
from autosched_tvm.worker_messages import UNTUNED  # noqa: E402

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
            Record(task=info.task, number=100 * info.task + at, candidate=m.candidate, latency_s=m.latency_s,
                   failure=m.failure, detail=m.detail)
            for at, m in enumerate(measured, len(records))
        ]  # fmt: skip
    return records


def templates(records: list[Record]) -> set[str]:
    """Returns the templates that made the records."""
    remembered = (json.loads(record.candidate)[2:] for record in records if record.candidate != UNTUNED)
    return {one[0].get("template", "") if one else "" for one in remembered}


def test_tasks_without_a_template_are_tuned_by_another_backend(tmp_path: Path) -> None:
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
    told = {name for group in evaluation.note_groups if "ansor" in group.text for name in group.about}
    assert told >= set(passed_on)


@pytest.mark.parametrize("backend", [AutoTvmBackend, AnsorBackend])
def test_measurements_of_an_earlier_job_warm_start_the_next_one(backend: type[TvmBackend[Any]], tmp_path: Path) -> None:
    """The earlier network shares one operator with the next one; the other operator has a new shape."""
    wide, narrow = conv_net(16, 12), conv_net(8, 12)

    def begun(name: str, model: onnx.ModelProto) -> tuple[TvmSession, Network]:
        folder = tmp_path / name
        folder.mkdir()
        onnx.save(model, folder / "net.onnx")
        session = backend().open(
            JobSpec(name=name, model="0" * 64, backend=backend.name, options=QUICK),
            folder / "net.onnx", folder / "work", folder / "out", 1,
        )  # fmt: skip
        assert isinstance(session, TvmSession)
        return session, session.import_network(lease("import"))

    first, network = begun("first", wide)
    records = [record for info in network.tasks for record in tuned(first, info, rounds=7)]
    first.kill()
    spec = JobSpec(name="first", model="0" * 64, backend=backend.name, options=QUICK)
    workloads = {info.task: info.workload for info in network.tasks}

    for name, model in (("same", wide), ("other", narrow)):
        session, network = begun(name, model)
        left = tmp_path / name / "work/earlier/7/prepared.onnx"  # where clients put it, under the name that imports use
        left.parent.mkdir(parents=True)
        onnx.save(wide, left)
        session.learn([Earlier(7, spec, left, workloads, tuple(records))], lease("import"))
        assert left.read_bytes() == wide.SerializeToString()
        convolution = next(info for info in network.tasks if "conv" in info.name)
        chosen = session.tuner(convolution, seed=1).select(8, lease("select"))
        assert chosen == session.tuner(convolution, seed=1).select(8, lease("select")), "a client that takes over, too"
        best = sorted(
            (
                record
                for record in records
                if record.best_s and workloads[record.task] == convolution.workload and record.candidate != UNTUNED
            ),
            key=lambda record: (record.best_s, record.candidate),
        )[:HEARD_MAX]
        assert chosen[0] == UNTUNED
        assert [record.candidate for record in best] == list(chosen[1 : 1 + len(best)])
        assert bool(best) == (name == "same")
        untaught, _ = begun(f"{name}-alone", model)
        alone = untaught.tuner(convolution, seed=1).select(8, lease("select"))
        assert set(alone) != set(chosen), "a search that was taught nothing chooses otherwise"
        session.kill()
        untaught.kill()


def test_a_job_that_was_tuned_without_tvm_teaches_nothing(tmp_path: Path) -> None:
    onnx.save(conv_net(4, 8), tmp_path / "net.onnx")
    job = JobSpec(name="net", model="0" * 64, options=QUICK)
    session = AutoTvmBackend().open(job, tmp_path / "net.onnx", tmp_path / "work", tmp_path / "out", 1)
    other = Earlier(7, JobSpec(name="c", model="0" * 64, backend="gcc"), tmp_path / "net.onnx", {}, ())
    with pytest.raises(RequestError, match="job 7 was tuned by backend 'gcc', which has no schedules of TVM"):
        session.learn([other], lease("import"))
    session.kill()
