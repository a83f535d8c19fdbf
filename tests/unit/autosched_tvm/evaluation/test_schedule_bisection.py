"""A schedule that is wrong in one task of a network is found, removed, and replaced."""

import importlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import pytest
from onnx import helper

pytest.importorskip("tvm")
pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.tvm

import tvm  # noqa: E402
import tvm_ffi  # noqa: E402
from tvm import tirx  # noqa: E402

from autosched.errors import StepFailed  # noqa: E402
from autosched.process.forked_workers import Died  # noqa: E402
from autosched_tvm import worker_messages  # noqa: E402
from autosched_tvm.compile import candidate_build, intrinsics, network_compiler, onnx_import, targets, task_extraction  # noqa: E402
from autosched_tvm.compile.layouts.layout_option import LayoutOption  # noqa: E402
from autosched_tvm.compile.rules import passes  # noqa: E402
from autosched_tvm.compile.side_file import side_of  # noqa: E402
from autosched_tvm.device.loaded_module import LoadedModule  # noqa: E402
from autosched_tvm.evaluation import schedule_bisection  # noqa: E402
from autosched_tvm.evaluation.verification_messages import Request  # noqa: E402
from autosched_tvm.evaluation.wrong_schedules import REJECTED, mended  # noqa: E402
from autosched_tvm.worker_messages import Compilation, TaskSchedules  # noqa: E402
from nets import model  # noqa: E402

TARGET = targets.resolve("x86-64-v3", 1)
SOUND, WRONG, WORSE, CRASHING = b"sound", b"wrong", b"worse", b"crashing"
UNFIT = b"unfit"


def three_layers(scale: float, *, index: bool) -> Any:
    """Three convolutions with outputs of this scale, or with the index of the largest channel as output."""
    random = np.random.default_rng(5)
    nodes, last = [], "x"
    weights = {}
    for number, (inside, outside) in enumerate(((3, 4), (4, 5), (5, 6))):
        factor = scale if number == 2 else 1.0
        weights[f"w{number}"] = factor * random.standard_normal((outside, inside, 3, 3)).astype("float32") / 4
        nodes.append(helper.make_node("Conv", [last, f"w{number}"], [f"c{number}"], pads=[1, 1, 1, 1]))
        last = f"c{number}"
        if number < 2:
            nodes.append(helper.make_node("Relu", [last], [f"r{number}"]))
            last = f"r{number}"
    if index:
        nodes.append(helper.make_node("ArgMax", [last], ["y"], axis=1, keepdims=0))
    else:
        nodes.append(helper.make_node("Mul", [last, "one"], ["y"]))
        weights["one"] = np.ones((1,), "float32")
    made = model(nodes, {"x": [1, 3, 8, 8]}, ["y"], weights)
    if index:
        made.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    return made


def spoiled(module: Any) -> Any:
    """Returns the workload without stores to its last column."""

    def skip(loop: Any) -> Any:
        if isinstance(loop.extent, tirx.IntImm) and int(loop.extent) == 8 and not done:
            done.append(True)
            return tirx.For(loop.loop_var, loop.min, loop.extent - 1, loop.kind, loop.body)
        return loop

    done: list[bool] = []
    function = module["main"]
    return tvm.IRModule(
        {"main": function.with_body(tvm_ffi.structural.structural_map(function.body, (tirx.For, skip)))}
    )


def crashing(module: Any) -> Any:
    """Returns the workload with a call of abort() in its innermost loops."""
    function = module["main"]

    def abort(store: Any) -> Any:
        return tirx.SeqStmt([tirx.Evaluate(tirx.call_extern("int32", "abort")), store])

    body = tvm_ffi.structural.structural_map(function.body, (tirx.BufferStore, abort))
    return tvm.IRModule({"main": function.with_body(body)})


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """Imports a network, and compiles it with a wrong schedule in its second task."""
    intrinsics.install()

    def scheduled(workload: Any, candidate: bytes) -> Any:
        if candidate == UNFIT:
            raise ValueError("it does not apply")
        return {SOUND: lambda same: same, CRASHING: crashing}.get(candidate, spoiled)(workload)

    monkeypatch.setattr(candidate_build, "scheduled", scheduled)

    def take(
        net: Any, candidates: tuple[bytes, ...], *, untuned: bool = True
    ) -> tuple[Compilation, list[TaskSchedules], Request]:
        path = tmp_path / "net.onnx"
        onnx.save(net, path)
        target = candidate_build.load_target(TARGET)
        fused, _ = network_compiler.laid_out(onnx_import.cleaned(net), target, [], LayoutOption.KEEP, winograd=False)
        extracted, workloads = task_extraction.extract([fused], target)
        choices = []
        for info, workload in zip(extracted.tasks, workloads, strict=True):
            task_extraction.save(workload, tmp_path / f"{info.task}.json")
            own = candidates if info.task == 2 else (SOUND,)
            choices.append(TaskSchedules(info.task, str(tmp_path / f"{info.task}.json"), own, 1e-3))
        compilation = Compilation(str(path), TARGET, str(tmp_path), "net", LayoutOption.KEEP.value, untuned=untuned)
        compiled = network_compiler.compile_network(compilation, choices)
        assert compiled.substitutes == candidates.count(UNFIT)
        return compilation, choices, Request((str(path),), 1)

    yield take
    candidate_build.load_task.cache_clear()


def ask(what: str, function: str, *arguments: Any, timeout_s: float) -> Any:
    """Calls a function here, where a job calls it in a child."""
    module, _, name = function.partition(":")
    if (
        function == worker_messages.VERIFY
    ):  # a library that this process has loaded is not loaded again from the same path
        copy = tempfile.mkdtemp(dir=arguments[0])
        for file in Path(arguments[0]).glob("*.*"):
            shutil.copy(file, copy)
        arguments = (copy, *arguments[1:])
    return getattr(importlib.import_module(module), name)(*arguments)


def choices_of(
    choices: list[TaskSchedules], asked: list[set[tuple[int, bytes]]] | None = None
) -> Callable[[Any], list[TaskSchedules]]:
    """Returns the function that a job passes to `mended`: schedules without the wrong ones, which are noted."""

    def without(wrong: Any) -> list[TaskSchedules]:
        if asked is not None:
            asked.append(set(wrong))
        return [
            TaskSchedules(c.task, c.workload, tuple(b for b in c.candidates if (c.task, b) not in wrong), c.best_s)
            for c in choices
        ]

    return without


def test_a_schedule_that_does_not_apply_is_counted_and_replaced(made: Any) -> None:
    made(three_layers(1.0, index=False), (UNFIT, SOUND))
    made(three_layers(1.0, index=False), (UNFIT,))


@pytest.mark.parametrize(
    ("scale", "index"), [(1.0, False), (1e-7, False), (1.0, True)], ids=["plain", "near zero", "argmax"]
)
def test_the_wrong_schedule_is_found_and_the_next_best_is_used(scale: float, index: bool, made: Any) -> None:
    compilation, choices, request = made(three_layers(scale, index=index), (WRONG, SOUND))
    asked: list[set[tuple[int, bytes]]] = []
    found = mended(ask, compilation, request, choices_of(choices, asked), (600.0, 600.0))
    assert [(one.task, one.candidate) for one in found.wrong] == [(2, WRONG)]
    assert found.verdict.checks["tuned"].equal
    assert found.verdict.checks["default"].equal
    assert found.difference is not None
    assert found.difference.got != found.difference.expected
    assert asked[-1] == {(2, WRONG)}
    assert "is right" in found.notes[-1]
    folder = Path(compilation.folder)
    assert LoadedModule(folder / REJECTED).info.build == "tuned"
    assert not list(folder.glob("attempt-*"))


def test_a_task_without_a_correct_schedule_gets_one_by_rule(made: Any) -> None:
    compilation, choices, request = made(three_layers(1.0, index=False), (WRONG, WORSE))
    found = mended(ask, compilation, request, choices_of(choices), (600.0, 600.0))
    assert [one.candidate for one in found.wrong] == [WRONG, WORSE], found.notes
    assert found.verdict.checks["tuned"].equal
    kernels = side_of(Path(compilation.folder) / "tuned").kernels
    assert "by rule" in kernels.values() and "default" not in kernels.values()


def test_a_schedule_that_crashes_the_network_is_found_and_replaced(made: Any) -> None:
    compilation, choices, request = made(three_layers(1.0, index=False), (CRASHING, SOUND))

    def ask_or_die(what: str, function: str, *arguments: Any, timeout_s: float) -> Any:
        if function == worker_messages.VERIFY and not arguments[1].apart:  # here it would end this process
            raise StepFailed("verify crashed: it was ended by SIGABRT") from Died("it was ended by SIGABRT")
        return ask(what, function, *arguments, timeout_s=timeout_s)

    found = mended(ask_or_die, compilation, request, choices_of(choices), (600.0, 600.0))
    assert [(one.task, one.candidate) for one in found.wrong] == [(2, CRASHING)]
    assert "SIGABRT" in found.wrong[0].detail
    assert found.verdict.checks["tuned"].equal
    assert "processes of their own" in found.notes[0]


@pytest.mark.parametrize("candidates", [(SOUND,), (WRONG, SOUND)], ids=["alone", "beside a wrong schedule"])
def test_a_kernel_whose_rule_is_wrong_stays_without_a_schedule(
    candidates: tuple[bytes, ...], made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ruled = passes.scheduled

    def wrong_for_a_convolution(function: Any, target: Any) -> Any:
        return spoiled({"main": function})["main"] if len(function.params) > 2 else ruled(function, target)

    monkeypatch.setattr(passes, "scheduled", wrong_for_a_convolution)
    net = three_layers(1.0, index=False)
    compilation, choices, request = made(net, candidates)
    choices = [one for one in choices if one.task != 1]  # its kernel is scheduled by rule
    network_compiler.compile_again(compilation, choices)
    found = mended(ask, compilation, request, choices_of(choices), (600.0, 600.0))
    assert found.verdict.checks["tuned"].equal, found.notes
    assert [one.candidate for one in found.wrong] == [WRONG] * candidates.count(WRONG)
    assert any("its schedule by rule was taken out: wrong in the network" in note for note in found.notes)
    assert "is right" in found.notes[-1]
    kernels = side_of(Path(compilation.folder) / "tuned").kernels
    assert sorted(kernels.values()).count("tuned") == len(choices)
    assert "default" in kernels.values()
    again = msgspec.structs.replace(compilation, without_rule=found.without_rule)
    assert mended(ask, again, request, choices_of(choices), (600.0, 600.0)).without_rule == found.without_rule


@pytest.mark.parametrize(
    ("candidates", "engine", "builds"),
    [
        ((SOUND,), True, {"tuned"}),
        ((SOUND,), False, {"tuned", "default"}),
        ((WRONG, SOUND), True, {"tuned", "default"}),
    ],
    ids=["correct", "no engine runs the model", "wrong"],
)
def test_an_untuned_build_is_made_where_the_judgement_needs_it(
    candidates: tuple[bytes, ...], engine: bool, builds: set[str], made: Any
) -> None:
    compilation, choices, request = made(three_layers(1.0, index=False), candidates, untuned=False)
    default = Path(compilation.folder) / "default.so"
    assert not default.exists()
    if not engine:
        (broken := default.with_name("broken.onnx")).write_bytes(b"no network")
        request = msgspec.structs.replace(request, models=(str(broken),))
    found = mended(ask, compilation, request, choices_of(choices), (600.0, 600.0))
    assert set(found.verdict.checks) == builds
    assert default.exists() == ("default" in builds)
    assert all(check.equal for check in found.verdict.checks.values())
    assert (found.verdict.reference == "the untuned build") is not engine
    assert found.verdict.verified is engine


def test_a_search_without_time_is_noted(made: Any) -> None:
    compilation, choices, request = made(three_layers(1.0, index=False), (WRONG, SOUND))
    found = schedule_bisection.find(compilation, choices, request, 0, -1.0)
    assert found.wrong == ()
    assert "its time was over" in found.notes[0]
