"""The tc backend without daemon and client: a whole job, its records and another backend's in one network."""

import os
from pathlib import Path

import onnx
import pytest

from autosched.backend import Lease
from autosched.model import JobSpec, Record
from nets import conv_net

pytest.importorskip("tvm")
pytestmark = pytest.mark.tvm

from autosched_backend_ansor import AnsorBackend  # noqa: E402
from autosched_backend_tc import TcBackend  # noqa: E402
from autosched_tvm.tuning import schedule_traces  # noqa: E402
from autosched_tvm.tuning.session import TvmSession  # noqa: E402
from autosched_tvm.tuning.tvm_backend import TvmBackend  # noqa: E402

CORES = sorted(os.sched_getaffinity(0))
LANE = Lease("select", ("host/0",), (CORES[-1],), 300.0)
DEVICE = Lease("profile", ("cpu0",), (CORES[0],), 300.0)
COMMON = {"batch": 4, "min_repeat_ms": 2.0}


def start(backend: TvmBackend[object], net: Path, folder: Path, **options: object) -> TvmSession:  # type: ignore[type-var]
    spec = JobSpec(name="net", model="0" * 64, options={**COMMON, **options})  # type: ignore[dict-item]
    session = backend.open(spec, net, folder / "work", folder / "out", 1)
    assert isinstance(session, TvmSession)
    return session


def tune(session: TvmSession, rounds: int, known: list[Record]) -> list[Record]:
    """Measures rounds of four candidates for each task, in a separate import."""
    records = list(known)
    for info in session.import_network(LANE).tasks:
        tuner = session.tuner(info, seed=1)
        tuner.restore([record for record in known if record.task == info.task])
        for _ in range(rounds):
            candidates = tuner.select(4, LANE)
            measured = list(tuner.profile(tuner.build(candidates, LANE), DEVICE))
            tuner.update(measured, LANE)
            records += [
                Record(
                    task=info.task, number=len(records) + i, candidate=m.candidate, latency_s=m.latency_s,
                    failure=m.failure, detail=m.detail,
                )
                for i, m in enumerate(measured)
            ]  # fmt: skip
    return records


def test_both_backends_records_make_one_network(tmp_path: Path) -> None:
    onnx.save(conv_net(), tmp_path / "net.onnx")
    quick = {"population_size": 12, "init_min_unmeasured": 4, "genetic_num_iters": 1}
    ansor = start(AnsorBackend(), tmp_path / "net.onnx", tmp_path / "ansor", **quick)  # type: ignore[arg-type]
    first = tune(ansor, 1, [])
    ansor.kill()
    tc = start(TcBackend(), tmp_path / "net.onnx", tmp_path / "tc", pop_size=8, number_elites=2)  # type: ignore[arg-type]
    records = tune(tc, 3, first)
    own = [
        trace.memo
        for record in records[len(first) :]
        if record.candidate and (trace := schedule_traces.read(record.candidate))
    ]
    tasks = {record.task for record in records}
    tc.compile(records, LANE)
    evaluation = tc.evaluate(DEVICE)
    tc.kill()

    # Of the first four one is the schedule of the rules, and a round ends with its generation of eight: 4, 1 and 4.
    assert len(records) == len(first) + 9 * len(tasks)
    assert max(memo["generation"] for memo in own) > 0
    assert sum(record.failure is None for record in records) > len(records) / 2
    assert len({(record.task, record.candidate) for record in records}) == len(records), "nothing is measured twice"
    assert evaluation.outputs_equal, evaluation
