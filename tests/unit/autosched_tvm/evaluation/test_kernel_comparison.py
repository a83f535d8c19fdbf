"""Kernels of a compiled network beside their unscheduled forms."""

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import pytest

tvm = pytest.importorskip("tvm")
pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.tvm

import tvm_ffi  # noqa: E402
from tvm import tirx  # noqa: E402

import this_cpu  # noqa: E402
from autosched_tvm.compile import model_sources, network_compiler, network_import, rules  # noqa: E402
from autosched_tvm.compile.candidate_build import load_target  # noqa: E402
from autosched_tvm.compile.integers import dot_instructions  # noqa: E402
from autosched_tvm.compile.layouts.layout_option import LayoutOption  # noqa: E402
from autosched_tvm.device.loaded_module import LoadedModule  # noqa: E402
from autosched_tvm.evaluation import kernel_comparison, verification  # noqa: E402
from autosched_tvm.evaluation.kernel_comparison import KernelComparison  # noqa: E402
from autosched_tvm.evaluation.verification_messages import Check, Request  # noqa: E402
from autosched_tvm.worker_messages import Compilation, Ways  # noqa: E402
from quantising import PRODUCTS_SHAPE, two_products  # noqa: E402

HERE = json.dumps(this_cpu.attributes(num_cores=1))
GARBAGE = 1e30
"""Content of memory that a kernel does not write."""


class Library:
    """Kernels without schedules, by name."""

    def __init__(self, **kernels: Any) -> None:
        self._kernels = kernels

    def implements_function(self, name: str, _imports: bool) -> bool:
        return name in self._kernels

    def get_function(self, name: str, _imports: bool) -> Any:
        return self._kernels[name]


def doubled(data: Any, result: Any, _number: int = 0) -> None:
    """Writes the doubles of the data to all elements of the result but the last."""
    array = result.numpy()
    array[:-1] = 2 * data.numpy()
    result.copyfrom(array)


def compared(data: np.ndarray[Any, Any], error: float, unscheduled: Any = doubled) -> Check:
    """Compares a kernel whose first result has an error."""
    calls = kernel_comparison._Calls(Library(doubled=unscheduled), math.inf, {})
    before = np.full(len(data) + 1, GARBAGE if data.dtype.kind == "f" else 99).astype(data.dtype)
    tensors = tvm.runtime.tensor(data), tvm.runtime.tensor(before)
    calls.around(None, "doubled", True, None, *tensors, 7)
    doubled(*tensors)
    array = tensors[1].numpy()
    array[0] += np.asarray(error).astype(data.dtype)
    tensors[1].copyfrom(array)
    calls.around(None, "doubled", False, None, *tensors, 7)
    return calls.checks["doubled"]


@pytest.mark.parametrize(("error", "equal"), [(0, True), (1, True), (2, False)])
def test_a_quantised_result_may_be_the_next_level(error: int, equal: bool) -> None:
    assert compared(np.arange(8, dtype="int8"), error).equal is equal


@pytest.mark.parametrize(("error", "runs"), [(0.0, 1), (1e-6, 2)])
def test_only_a_kernel_that_differs_runs_on_perturbed_numbers(error: float, runs: int) -> None:
    seen: list[int] = []

    def counted(data: Any, result: Any, number: int) -> None:
        seen.append(number)
        doubled(data, result)

    assert compared(np.arange(8, dtype="float32"), error, counted).equal
    assert seen == [7] * runs


@pytest.mark.parametrize(("error", "equal"), [(0, True), (1, False)])
def test_sums_are_exact(error: int, equal: bool) -> None:
    assert compared(np.arange(8, dtype="int32"), error).equal is equal


@pytest.mark.parametrize(("error", "equal"), [(1e-6, True), (1e-2, False)])
def test_elements_that_no_kernel_writes_do_not_widen_the_tolerance(error: float, equal: bool) -> None:
    found = compared(np.arange(8, dtype="float32"), error)
    assert found.equal is equal
    assert equal or (found.difference is not None and found.difference.output == "argument 1 of kernel doubled")


@pytest.mark.parametrize(("error", "equal"), [(0.0, True), (0.01, False)])
def test_a_long_sum_may_differ_by_the_rounding_of_its_terms(error: float, equal: bool) -> None:
    def mean(data: Any, result: Any) -> None:
        result.copyfrom(np.add.accumulate(data.numpy())[-1:])  # one after the other

    calls = kernel_comparison._Calls(Library(mean=mean), math.inf, {})
    data = np.full(100_000, 0.1, "float32")
    tensors = tvm.runtime.tensor(data), tvm.runtime.tensor(np.zeros(1, "float32"))
    calls.around(None, "mean", True, None, *tensors)
    exact = data.sum(dtype="float64")
    mean(*tensors)
    assert abs(tensors[1].numpy()[0] / exact - 1) > 5e-5, "the reference itself is inexact"
    tensors[1].copyfrom(np.array([exact * (1 + error)], "float32"))
    calls.around(None, "mean", False, None, *tensors)
    assert calls.checks["mean"].equal is equal


@pytest.mark.parametrize(
    ("place", "error", "equal"),
    [
        (0, -3, True),  # 0.5001 is next to a tie: as 0 instead of 1 it makes 3 levels less
        (0, -4, True),  # and the result may be the next level
        (0, -5, False),
        (1, -3, False),  # 0.9 is 1
        (1, -1, True),
    ],
)
def test_a_kernel_that_rounds_twice_may_be_off_by_several_levels_where_a_tie_is_near(
    place: int, error: int, equal: bool
) -> None:
    def tripled(data: Any, result: Any, moves: Any) -> None:
        first, second = moves.numpy()
        result.copyfrom(np.round(10 + 3 * np.round(data.numpy() + first) + second).astype("uint8"))

    calls = kernel_comparison._Calls(Library(tripled=tripled), math.inf, {"tripled": 2})
    data = np.array([0.5001, 0.9, 3.0], "float32")
    tensors = tvm.runtime.tensor(data), tvm.runtime.tensor(np.zeros(3, "uint8"))
    calls.around(None, "tripled", True, None, *tensors)
    result = np.array([13, 13, 19], "int64")
    result[place] += error
    tensors[1].copyfrom(result.astype("uint8"))
    calls.around(None, "tripled", False, None, *tensors)
    assert calls.checks["tripled"].equal is equal


class Network:
    """A network of one kernel, whose result is wrong where its input is 3."""

    def machine(self) -> "Network":
        return self

    def set_instrument(self, around: Any) -> None:
        self._around = around

    def tensors(self, inputs: dict[str, Any]) -> tuple[Any, Any]:
        data = inputs["x"]
        return tvm.runtime.tensor(data), tvm.runtime.tensor(np.zeros(len(data) + 1, data.dtype))

    def __getitem__(self, _name: str) -> Any:
        return self._main

    def _main(self, data: Any, result: Any) -> None:
        self._around(None, "doubled", True, None, data, result)
        doubled(data, result)
        array = result.numpy()
        array[:-1] += data.numpy() == 3
        result.copyfrom(array)
        self._around(None, "doubled", False, None, data, result)


def test_kernels_are_compared_on_each_sample_and_the_difference_names_it() -> None:
    comparison = object.__new__(KernelComparison)
    comparison._library, comparison._roundings = Library(doubled=doubled), {}
    network: Any = Network()
    zeros, numbers = ({"x": array} for array in (np.zeros(8, "int32"), np.arange(8, dtype="int32")))
    assert comparison.check(network, [zeros]) == (Check(True, 0.0, 0.0), "")
    found, _ = comparison.check(network, [zeros, numbers])
    assert found.difference is not None
    assert (found.equal, found.difference.sample, found.difference.index) == (False, 1, (3,))


def last_loop_shorter(function: Any) -> Any:
    """Returns the kernel without the last step of a loop, as a tuned one, so that no rule schedules it."""
    done: list[bool] = []

    def shorter(loop: Any) -> Any:
        if not done and isinstance(loop.extent, tirx.IntImm) and int(loop.extent) > 1:
            done.append(True)
            return tirx.For(loop.loop_var, loop.min, loop.extent - 1, loop.kind, loop.body)
        return loop

    body = tvm_ffi.structural.structural_map(function.body, (tirx.For, shorter))
    return function.with_body(body).with_attr(rules.SCHEDULE, rules.TUNED)


@pytest.fixture
def builds(tmp_path: Path) -> Path:
    """Compiles a quantised network; returns the folder of the builds, and of "wrong" with a wrong kernel."""
    target = load_target(HERE)
    if dot_instructions.of_target(target) is None:
        pytest.skip("this machine has no dot instruction")
    onnx.save(two_products(False), tmp_path / "net.onnx")
    prepared = str(tmp_path / "prepared.onnx")
    network_import.take_in(str(tmp_path / "net.onnx"), {}, HERE, prepared, str(tmp_path), Ways(integers=True))
    compilation = Compilation(prepared, HERE, str(tmp_path), "net", LayoutOption.KEEP.value)
    assert set(network_compiler.compile_network(compilation, []).builds) == {"default", "tuned", "unscheduled"}
    source = model_sources.load(Path(prepared))
    fused, _ = network_compiler.laid_out(source.cleaned(target), target, [], LayoutOption.KEEP, winograd=False)
    variable = next(v for v, f in fused.functions_items() if "product" in v.name_hint)
    fused.update_func(variable, last_loop_shorter(fused[variable]))
    network_compiler.write_build(tmp_path / "wrong", fused, source, HERE, network_compiler.SideName("net", "tuned"))
    return tmp_path


def test_the_unscheduled_build_stays_while_its_network_and_target_are_the_same(builds: Path) -> None:
    compilation = Compilation(str(builds / "prepared.onnx"), HERE, str(builds), "net", LayoutOption.KEEP.value)
    library = builds / "unscheduled.so"
    library.write_bytes(b"kept")
    assert network_compiler.compile_again(compilation, []).builds == ("tuned", "unscheduled")
    assert library.read_bytes() == b"kept"
    two_cores = msgspec.structs.replace(compilation, target=HERE.replace('"num-cores": 1', '"num-cores": 2'))
    network_compiler.compile_again(two_cores, [])
    assert library.read_bytes().startswith(b"\x7fELF")
    uncompared = msgspec.structs.replace(compilation, compares_kernels=False)
    assert network_compiler.compile_again(uncompared, []).builds == ("tuned",)


def test_the_kernels_of_a_network_with_integers_are_compared(builds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = {"x": np.random.default_rng(0).standard_normal(PRODUCTS_SHAPE).astype("float32")}
    comparison = KernelComparison(builds / "unscheduled")
    sound, wrong = (LoadedModule(builds / name) for name in ("tuned", "wrong"))
    right, nothing = comparison.check(sound, [data])
    assert right.equal
    assert not nothing
    found, _ = comparison.check(wrong, [data])
    assert not found.equal
    assert found.difference is not None
    assert "product" in found.difference.output
    monkeypatch.setattr(kernel_comparison, "LIMIT_S", -1.0)
    late, note = comparison.check(wrong, [data])
    assert late.equal
    assert note.endswith("kernels were not compared within -1 s")


def test_a_build_with_a_wrong_kernel_is_refused_unless_the_user_gave_a_tolerance(
    builds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def verdict(share: float | None) -> bool:
        request = Request((str(builds / "net.onnx"),), 1, share=share)
        return verification.verify(str(builds), request).checks["tuned"].equal

    assert verdict(None)
    wrong = Check(False, 1.0, 0.0)
    monkeypatch.setattr(KernelComparison, "check", lambda *_: (wrong, "a note"))
    assert not verdict(None)
    assert verdict(0.1)
