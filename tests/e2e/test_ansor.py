"""The ansor backend without daemon and client: a whole job in this process, and failures of candidates."""

import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import psutil
import pytest
from onnx import helper

from autosched import zoo
from autosched.backend import Built, Lease, Measured, Network
from autosched.errors import ModelRejected, RequestError, StepFailed
from autosched.model import Failure, Identity, JobSpec, Purpose, Record, TaskInfo
from autosched.records import winner
from autosched.recordstore.keys import environment, measurement_id
from autosched.recordstore.rows import Measurement, Origin, SourceJob, Workload
from deadlines import DEADLINE_S
from nets import conv_net, model, small_net
from processes import is_dead

pytest.importorskip("tvm")
pytestmark = pytest.mark.tvm

import tvm  # noqa: E402
from tvm.s_tir.meta_schedule.arg_info import ArgInfo  # noqa: E402

from autosched_backend_ansor import AnsorBackend  # noqa: E402
from autosched_tvm.compile import candidate_build  # noqa: E402
from autosched_tvm.device.loaded_module import LoadedModule  # noqa: E402
from autosched_tvm.generated_inputs import random_inputs  # noqa: E402
from autosched_tvm.record_formats import metaschedule  # noqa: E402
from autosched_tvm.tuning.session import TvmSession  # noqa: E402
from autosched_tvm.tuning.tuner import KEPT  # noqa: E402
from autosched_tvm.worker_messages import UNTUNED  # noqa: E402

CORES = sorted(os.sched_getaffinity(0))
QUICK: dict[str, bool | int | float | str] = {
    "population_size": 16, "init_min_unmeasured": 4, "genetic_num_iters": 1, "batch": 4, "min_repeat_ms": 2.0,
    "num_warmup_samples": 4,
}  # fmt: skip


def lane(stage: str, timeout_s: float = 300.0) -> Lease:
    return Lease(stage, ("host/0",), (CORES[-1],), timeout_s)


def device(stage: str) -> Lease:
    return Lease(stage, ("cpu0",), (CORES[0],), 300.0)


def start(net: Path, folder: Path, **words: object) -> TvmSession:
    spec = JobSpec(name="net", model="0" * 64, **{"options": QUICK, **words})  # type: ignore[arg-type]
    session = AnsorBackend().open(spec, net, folder / "work", folder / "out", 1)
    assert isinstance(session, TvmSession)
    return session


def saved(net: object, folder: Path) -> Path:
    path = folder / "net.onnx"
    onnx.save(net, path)
    return path


def tune(session: TvmSession, network: Network, rounds: int) -> list[Record]:
    """Measures rounds of four candidates: one for each task, `rounds` for the two heaviest."""
    records: list[Record] = []
    for info in network.tasks:
        tuner = session.tuner(info, seed=1)
        for _ in range(rounds if info.task <= 2 else 1):
            candidates = tuner.select(4, lane("select"))
            measured = list(tuner.profile(tuner.build(candidates, lane("build")), device("profile")))
            tuner.update(measured, lane("update"))
            for m in measured:
                record = Record(
                    task=info.task,
                    number=len(records),
                    candidate=m.candidate,
                    latency_s=m.latency_s,
                    failure=m.failure,
                    detail=m.detail,
                )
                records.append(record)
    return records


# A whole job ----------------------------------------------------------------------------------------------------------


@pytest.mark.fetch
def test_a_trained_network_becomes_faster_and_stays_right(tmp_path: Path) -> None:
    entry = zoo.catalogue()["rnet"]
    try:
        net = zoo.fetch("rnet", tmp_path)
    except RequestError as error:
        if "Is the package index reachable?" not in str(error) and "Is the network up?" not in str(error):
            raise
        pytest.skip(str(error))
    session = start(net, tmp_path, shapes=entry.shapes)
    network = session.import_network(lane("import"))
    records = tune(session, network, rounds=2)
    session.compile(records, lane("compile"))
    evaluation = session.evaluate(device("evaluate"))

    assert network.default_trials >= len(network.tasks)
    assert {skipped.name for skipped in network.skipped} >= {"softmax"}
    assert sum(r.failure is None for r in records) > len(records) / 2
    assert evaluation.outputs_equal, evaluation
    medians = {t.name: t.median_s for t in evaluation.timings}
    assert medians["tuned"] < medians["default"] / 2
    assert evaluation.published == "tuned"
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["net.json", "net.samples.npz", "net.so"]
    _says_what_onnxruntime_says(tmp_path, entry.shapes)
    session.kill()
    assert not _children_left()


def _says_what_onnxruntime_says(folder: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    module = LoadedModule(folder / "out" / "net.so")
    assert {t.name: t.shape for t in module.info.inputs} == shapes
    inputs = random_inputs(module.info.inputs, seed=9)
    expected = onnxruntime.InferenceSession(folder / "rnet.onnx").run(None, inputs)
    for got, wanted in zip(module.run(inputs), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-5)


def _children_left() -> list[psutil.Process]:
    """Returns processes of this test that could be workers; the fork server itself stays."""
    servers = {p.pid for p in psutil.Process().children()}
    found = [p for p in psutil.Process().children(recursive=True) if p.pid not in servers]
    _, alive = psutil.wait_procs(found, timeout=DEADLINE_S)
    return [p for p in alive if not is_dead(p.pid)]


# One task -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TvmSession]:
    folder = tmp_path_factory.mktemp("one")
    made = start(saved(conv_net(), folder), folder, options=QUICK)
    made.import_network(lane("import"))
    yield made
    made.kill()


@pytest.fixture(scope="module")
def task(session: TvmSession) -> TaskInfo:
    return session.import_network(lane("import")).tasks[0]


def test_a_task_has_a_name_and_a_description(task: TaskInfo) -> None:
    assert (task.task, task.weight) == (1, 1)
    assert task.shape == "conv2d+add+relu 16x16x16 -> 16x16x16, 3x3"
    assert task.flops == pytest.approx(2 * 16 * 16 * 9 * 16 * 16, rel=0.1)


def test_the_same_seed_selects_the_same_candidates(session: TvmSession, task: TaskInfo) -> None:
    first, again, other = (session.tuner(task, seed).select(4, lane("select")) for seed in (5, 5, 6))
    assert list(first) == list(again) != list(other)


def test_no_candidate_is_selected_twice_even_after_a_restart(session: TvmSession, task: TaskInfo) -> None:
    seen: list[bytes] = []
    records: list[Record] = []
    for _ in range(2):  # two successive clients
        tuner = session.tuner(task, 3)
        tuner.restore(records)
        for _ in range(2):
            chosen = tuner.select(4, lane("select"))
            seen += chosen
            measured = list(tuner.profile(tuner.build(chosen, lane("build")), device("profile")))
            tuner.update(measured, lane("update"))
            records += [
                Record(task=1, number=len(records) + i, candidate=m.candidate, latency_s=m.latency_s, failure=m.failure)
                for i, m in enumerate(measured)
            ]
    assert len(seen) == len(set(seen)) == 16
    assert len(list(session.kernels.artifacts.iterdir())) <= 2 * KEPT


def test_the_best_and_the_default_are_measured_side_by_side(session: TvmSession, task: TaskInfo) -> None:
    tuner = session.tuner(task, 21)
    measured = list(tuner.profile(tuner.build(tuner.select(4, lane("select")), lane("build")), device("profile")))
    valid = sorted((m for m in measured if m.latency_s), key=lambda m: statistics.median(m.latency_s))
    default = tuner.default()
    assert default is not None
    entrants = [valid[0].candidate, valid[1].candidate, default]
    built = tuner.build(entrants, lane("build"))
    assert [b.build_s for b in built[:2]] == [0.0, 0.0], "kernels of the best are kept"
    assert {len(b.code) for b in built} == {64}, "with the digests of their code"
    before = set(session.kernels.artifacts.iterdir())
    compared = list(tuner.compare(built, device("profile")))
    assert [m.candidate for m in compared] == entrants
    assert all(m.failure is None for m in compared)
    assert {len(m.latency_s) for m in compared} == {2 * session.options.repeat}
    assert {b.artifact for b in built} <= before - set(session.kernels.artifacts.iterdir())


@pytest.mark.skipif(shutil.which("cc") is None, reason="makes a kernel with a C compiler")
def test_a_wrong_kernel_does_not_spoil_the_comparison(session: TvmSession, task: TaskInfo, tmp_path: Path) -> None:
    tuner = session.tuner(task, 22)
    default = tuner.default()
    assert default is not None
    (right,) = tuner.build([default], lane("build"))
    assert right.artifact is not None
    source, wrong = tmp_path / "wrong.c", tmp_path / "wrong.so"
    source.write_text("int __tvm_ffi_main(void *a, const void *b, int c, void *d) { return 0; }")
    subprocess.run(["cc", "-O0", "-shared", "-fPIC", "-o", wrong, source], check=True, timeout=DEADLINE_S)
    first, second = tuner.compare([Built(b"wrong", wrong), right], device("profile"))
    assert (first.failure, second.failure) == (Failure.WRONG_RESULT, None)


def test_the_search_of_a_small_space_ends(tmp_path: Path) -> None:
    net = model([helper.make_node("GlobalMaxPool", ["x"], ["y"])], {"x": [1, 2, 4, 4]}, ["y"], {})
    session = start(saved(net, tmp_path), tmp_path)
    tuner = session.tuner(session.import_network(lane("import")).tasks[0], 0)
    found: list[bytes] = []
    for _ in range(400):
        if not (chosen := tuner.select(8, lane("select"))):
            break
        found += chosen
        tuner.update([Measured(one, (1e-3,)) for one in chosen], lane("update"))
    session.kill()
    assert not chosen
    assert len(set(found)) == len(found) > 0


BAD_KERNELS = {
    "crashes": ("*(volatile int *)0 = 1; return 0;", Failure.RUN_CRASH, "SIGSEGV"),
    "hangs": ("for (;;) {} return 0;", Failure.RUN_TIMEOUT, "not measured within 1 s"),
    "freezes": ("raise(SIGSTOP); return 0;", Failure.RUN_TIMEOUT, "not measured within 1 s"),
    "does nothing": ("return 0;", Failure.WRONG_RESULT, "differs from the reference kernel"),
    "exits": ("_exit(7); return 0;", Failure.RUN_CRASH, "exit code 7"),
}


@pytest.mark.skipif(shutil.which("cc") is None, reason="makes kernels with a C compiler")
@pytest.mark.parametrize("behaviour", BAD_KERNELS)
def test_a_bad_kernel_is_a_record_and_the_next_one_is_fine(
    behaviour: str, session: TvmSession, task: TaskInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body, failure, words = BAD_KERNELS[behaviour]
    source, library = tmp_path / "bad.c", tmp_path / "bad.so"
    source.write_text(
        "#include <signal.h>\n#include <unistd.h>\n"
        f"int __tvm_ffi_main(void *self, const void *args, int count, void *result) {{ {body} }}\n"
    )
    subprocess.run(["cc", "-O0", "-shared", "-fPIC", "-o", library, source], check=True, timeout=DEADLINE_S)
    tuner = session.tuner(task, 11)
    good = tuner.build(tuner.select(1, lane("select")), lane("build"))
    measuring = iter(tuner.profile([Built(b"bad", library), *good], device("profile")))
    with monkeypatch.context() as patch:
        if failure is Failure.RUN_TIMEOUT:
            patch.setattr(session.kernels, "options", msgspec.structs.replace(session.options, run_timeout_s=1.0))
        bad = next(measuring)
    (fine,) = measuring
    assert bad.failure is failure
    assert words in bad.detail
    assert fine.failure is None
    assert 0 < statistics.median(fine.latency_s) < 1


def test_the_same_records_give_the_same_module(session: TvmSession, task: TaskInfo, tmp_path: Path) -> None:
    tuner = session.tuner(task, 23)
    built = tuner.build(tuner.select(4, lane("select")), lane("build"))
    records = [
        Record(task=1, number=n, candidate=one.candidate, latency_s=(1.0,) * 6, code=one.code)
        for n, one in enumerate(built)
    ]
    modules = []
    for name, some in (("one", records), ("other", records[::-1])):
        (tmp_path / name).mkdir()
        other = start(saved(conv_net(), tmp_path / name), tmp_path / name)
        other.import_network(lane("import"))
        other.compile(winner.order(some), lane("compile"))
        modules.append((other._builds / "tuned.so").read_bytes())
        other.kill()
    assert modules[0] == modules[1]


def test_an_unmodified_tvm_compiles_exported_schedules(session: TvmSession, task: TaskInfo, tmp_path: Path) -> None:
    tuner = session.tuner(task, 29)
    built = tuner.build(tuner.select(4, lane("select")), lane("build"))
    measured = [one for one in tuner.profile(built, device("profile")) if one.candidate]
    fastest = min((one for one in measured if one.latency_s), key=lambda one: statistics.mean(one.latency_s))
    where = environment(Identity(session.target, "a CPU"), "ansor", task.template)
    workload = Workload(task.workload, task.name, task.shape, task.flops)
    rows = []
    for number, one in enumerate(measured):
        record = Record(task=1, number=number, candidate=one.candidate, latency_s=one.latency_s, failure=one.failure)
        name = measurement_id("lab", 1, task.workload, record)
        rows.append((Origin("lab"), Measurement(name, SourceJob(1), workload, where, record)))
    database, out = tmp_path / "database", tmp_path / "out"
    database.mkdir()
    out.mkdir()
    told = metaschedule.write(lambda: rows, lambda _: {task.workload: session.program(task)}, database)
    assert (told.records, told.workloads) == (len(rows), 1)
    program = [sys.executable, "benchmarks/tvm_alone.py", str(database), str(out)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {task.workload: pytest.approx(statistics.mean(fastest.latency_s))}
    candidate_build.build(session.kernels.task_file(task), session.target, fastest.candidate, str(tmp_path / "ours.so"))
    module = candidate_build.load_task(session.kernels.task_file(task))
    answers = []
    for library in (tmp_path / "ours.so", out / f"{task.workload}.so"):
        arguments = random_arguments(module)
        tvm.runtime.load_module(str(library))["main"](*arguments)
        answers.append(arguments[-1].numpy())
    np.testing.assert_allclose(*answers, rtol=1e-4, atol=1e-5)


def random_arguments(module: Any) -> list[Any]:
    """Returns equal arguments for the same workload: its inputs, and a buffer for its output."""
    generator = np.random.default_rng(7)
    infos = ArgInfo.from_entry_func(module, remove_preproc=True)
    shapes = [[int(size) for size in info.shape] for info in infos]
    return [tvm.runtime.tensor(generator.random(shape, dtype="float32")) for shape in shapes]


def test_candidates_that_cannot_be_built_are_records(session: TvmSession, task: TaskInfo) -> None:
    tuner = session.tuner(task, 12)
    built = tuner.build([b"not json", b"[[], []]", b'[[["NoSuchThing", [], [], []]], []]'], lane("build"))
    assert [b.failure for b in built] == [Failure.BUILD_ERROR, None, Failure.BUILD_ERROR]
    assert all(b.detail for b in built if b.failure)
    assert next(iter(tuner.profile(built, device("profile")))).failure is Failure.BUILD_ERROR


def test_a_build_that_takes_too_long_is_a_record(session: TvmSession, task: TaskInfo, tmp_path: Path) -> None:
    impatient = start(saved(conv_net(), tmp_path), tmp_path, options={**QUICK, "build_timeout_s": 1e-6})
    impatient.import_network(lane("import"))
    session.kernels.reference(task, lane("build"))
    shutil.copyfile(session.kernels.reference_file(task), impatient.kernels.reference_file(task))
    tuner = impatient.tuner(task, 0)
    built = tuner.build(tuner.select(1, lane("select")), lane("build"))
    impatient.kill()
    assert built[0].failure is Failure.BUILD_TIMEOUT


def test_kill_ends_a_running_step(session: TvmSession, task: TaskInfo, tmp_path: Path) -> None:
    tuner = session.tuner(task, 13)
    candidates = tuner.select(4, lane("select"))
    tuner.build(candidates[:1], lane("build"))
    held, other = lane("build"), lane("build")
    killing = threading.Timer(0.5, session.kill, (held,))
    session.kill(other)  # ends no process of ours, although it is on the same core
    killing.start()
    try:
        with pytest.raises(StepFailed, match="killed"):
            tuner.build(candidates * 100, held)
    finally:
        killing.join()
    assert [b.failure for b in tuner.build(candidates[:1], lane("build"))] == [None]


def test_a_worker_killed_from_outside_costs_one_candidate(session: TvmSession, task: TaskInfo) -> None:
    tuner = session.tuner(task, 14)
    candidates = tuner.select(2, lane("select"))
    pid = session._workers.call("build", lane("build"), "os:getpid", timeout_s=60)
    os.kill(pid, signal.SIGSTOP)
    os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(pid).wait(timeout=DEADLINE_S)
    built = tuner.build(candidates, lane("build"))
    assert built[-1].failure is None


# Bad models -----------------------------------------------------------------------------------------------------------


def rejected(net: Path, folder: Path, **words: object) -> str:
    with pytest.raises((ModelRejected, RequestError)) as raised:
        start(net, folder, **words).import_network(lane("import"))
    return str(raised.value)


def test_an_unsupported_operator_is_named(tmp_path: Path) -> None:
    net = model([helper.make_node("Relu", ["x"], ["z"])], {"x": [1, 2, 2]}, ["z"], {})
    net.graph.node.append(helper.make_node("Det", ["x"], ["y"], name="determinant"))
    net.graph.output.append(helper.make_tensor_value_info("y", 1, None))
    assert "operator Det (node 'determinant')" in rejected(saved(net, tmp_path), tmp_path)


def test_a_network_without_arithmetic_is_refused(tmp_path: Path) -> None:
    net = model([helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0])], {"x": [3, 2]}, ["y"], {})
    assert "no operator worth tuning" in rejected(saved(net, tmp_path), tmp_path)


def test_a_dynamic_shape_without_a_value_is_refused(tmp_path: Path) -> None:
    message = rejected(saved(small_net(batch="N", height="H"), tmp_path), tmp_path)
    assert "--shape x=1,3," in message


@pytest.mark.parametrize(("words", "told"), [({"options": {"popsize": 3}}, "popsize"), ({"target": "cuda"}, "cuda")])
def test_impossible_options_are_refused(words: dict[str, object], told: str, tmp_path: Path) -> None:
    assert told in rejected(saved(conv_net(), tmp_path), tmp_path, **words)


def test_a_task_whose_default_won_is_compiled_without_a_schedule(session: TvmSession, task: TaskInfo) -> None:
    fast, slow = ((seconds,) * 3 for seconds in (1e-3, 2e-3))
    tuned = Record(task=task.task, number=0, candidate=b"[]", latency_s=slow, purpose=Purpose.FINAL)
    default = Record(task=task.task, number=1, candidate=UNTUNED, latency_s=fast, purpose=Purpose.DEFAULT)
    session._records = (tuned, default)
    (choice,) = session._choices()
    assert (choice.candidates, choice.best_s) == ((), 1e-3)
    session._records = (tuned, msgspec.structs.replace(default, latency_s=(3e-3,)))
    (choice,) = session._choices()
    assert choice.candidates == (b"[]",)
    assert session._choices({(task.task, b"[]")})[0].candidates == ()


def test_without_records_the_network_is_built_by_rule_and_correct(tmp_path: Path) -> None:
    session = start(saved(small_net(), tmp_path), tmp_path)
    session.import_network(lane("import"))
    session.compile([], lane("compile"))
    evaluation = session.evaluate(device("evaluate"))
    session.kill()
    assert evaluation.outputs_equal
    assert evaluation.wrong == ()
    assert LoadedModule(tmp_path / "out" / "net.json").info.build == evaluation.published


def commands(words: Sequence[str]) -> dict[str, object]:
    import sys

    done = subprocess.run(
        [sys.executable, "-m", *words], capture_output=True, text=True, timeout=3 * DEADLINE_S, check=False
    )
    assert len(done.stdout.splitlines()) == 1, done
    answer: dict[str, object] = msgspec.json.decode(done.stdout)
    assert (done.returncode == 0) is answer["ok"]
    return answer


def test_check_and_probe_and_module_print_one_json_object(tmp_path: Path) -> None:
    net = saved(small_net(batch="N", height="H"), tmp_path)
    answer = commands(["autosched_tvm.commands.model_check", str(net), "--shape", "x=1,3,12,12"])
    assert (answer["ok"], answer["opset"], answer["nodes_before"]) == (True, 13, 9)
    assert commands(["autosched_tvm.commands.model_check", str(net)])["code"] == "model_rejected"
    assert commands(["autosched_tvm.commands.model_check", str(net), "--shape", "x"])["code"] == "request"
    assert commands(["autosched_tvm.commands.module_command", "run", str(tmp_path / "none.so")])["code"] == "not_found"
    findings = commands(["autosched_tvm.commands.installation_check"])["findings"]
    assert isinstance(findings, list)
    assert {finding["state"] for finding in findings} == {"ok"}
