"""Networks on a GPU, without a search: each kernel has a schedule by rule, and the outputs are those of ONNX."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fakecuda

pytest.importorskip("tvm")
pytest.importorskip("onnx")
import onnx
from onnx import TensorProto, helper, numpy_helper

from nets import small_net, transformer

pytestmark = [
    pytest.mark.tvm,
    pytest.mark.skipif(fakecuda.missing() is not None, reason=str(fakecuda.missing())),
]
LANE = """
import json, sys
from pathlib import Path
from autosched_tvm.compile import model_sources, network_compiler, onnx_import, targets
from autosched_tvm.compile.candidate_build import load_target
folder = Path(sys.argv[1])
target = json.dumps(targets.of_gpu(90))
for file in sorted(folder.glob("*.onnx")):
    ready = model_sources.prepare(file, {}, integers=False)
    fused = onnx_import.fused(ready.source.cleaned(load_target(target)), load_target(target))
    for build in (network_compiler.DEFAULT, network_compiler.TUNED):
        who = network_compiler.SideName("net", build)
        network_compiler.write_build(folder / f"{file.stem}-{build}", fused, ready.source, target, who)
"""
DEVICE = """
import json, os, sys
from pathlib import Path
import numpy as np
from autosched_tvm.device.loaded_module import LoadedModule
from autosched_tvm.device.place import place_of
from autosched_tvm.worker_messages import OwnGpu
folder, uuid = Path(sys.argv[1]), sys.argv[2]
for library in sorted(folder.glob("*.so")):
    if (child := os.fork()) == 0:  # a fault of CUDA ends the process
        with place_of(OwnGpu(uuid)) as place:
            module = LoadedModule(library, place=place)
            with np.load(folder / f"{library.stem.rpartition('-')[0]}.npz") as inputs:
                outputs = module.run(dict(inputs))
            np.savez(folder / f"{library.stem}.out.npz", *outputs)
        os._exit(0)
    os.waitpid(child, 0)
"""
RANDOM = np.random.default_rng(1)
CASES: dict[str, tuple[Any, dict[str, Any]]] = {}


def case(build: Callable[[], tuple[Any, dict[str, Any]]]) -> Callable[[], tuple[Any, dict[str, Any]]]:
    CASES[build.__name__.replace("_", " ")] = build()
    return build


def floats(*shape: int) -> Any:
    return RANDOM.standard_normal(shape).astype("float32")


def one(operator: str, inputs: dict[str, Any], constants: dict[str, Any] | None = None, **attributes: Any) -> Any:
    """A network of one operator."""
    names = [*inputs, *(constants or {})]
    graph = helper.make_graph(
        [helper.make_node(operator, names, ["y"], **attributes)], "net",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in inputs.items()
        ],
        [helper.make_tensor_value_info("y", TensorProto.UNDEFINED, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    return onnx.shape_inference.infer_shapes(made), inputs


@case
def a_small_network() -> Any:
    return small_net(), {"x": floats(1, 3, 12, 12)}


@case
def a_transformer() -> Any:
    return transformer(), {"x": floats(1, 12, 32)}


@case
def a_quantised_convolution() -> Any:
    constants = {
        "xs": np.float32(0.02), "xz": np.uint8(120), "w": RANDOM.integers(0, 255, (4, 2, 3, 3), np.uint8),
        "ws": np.float32(0.01), "wz": np.uint8(130), "ys": np.float32(0.3), "yz": np.uint8(110),
    }  # fmt: skip
    return one("QLinearConv", {"x": RANDOM.integers(0, 255, (1, 2, 6, 6), np.uint8)}, constants)


@case
def a_sum_of_one_term_whose_result_is_rounded() -> Any:
    """TVM's rules write the rounding into the sum."""
    constants = {
        "xs": np.float32(0.004), "xz": np.uint8(132), "w": np.zeros((1, 1, 1, 1), np.uint8), "ws": np.float32(0.002),
        "wz": np.uint8(255), "ys": np.float32(0.002), "yz": np.uint8(123),
    }  # fmt: skip
    return one("QLinearConv", {"x": RANDOM.integers(0, 255, (1, 1, 7, 7), np.uint8)}, constants)


@case
def values_scattered_by_index() -> Any:
    """Its indices are computed by a kernel of the same function, into memory of the GPU."""
    return one("ScatterND", {"x": floats(4, 4, 4), "at": np.array([[0], [2]]), "new": floats(2, 4, 4)})


@case
def values_scattered_along_an_axis() -> Any:
    return one("ScatterElements", {"x": floats(1, 5), "at": np.array([[1, 3]]), "new": floats(1, 2)}, axis=1)


@case
def the_place_of_a_maximum() -> Any:
    return one("ArgMax", {"x": floats(3, 50)}, axis=1)


@case
def the_largest_values() -> Any:
    return one("CumSum", {"x": floats(4, 30)}, {"axis": np.int64(1)})


@case
def a_sum_of_all() -> Any:
    return one("ReduceSum", {"x": floats(3, 40)}, {"axes": np.array([0, 1])}, keepdims=0)


@case
def one_number() -> Any:
    return one("Erf", {"x": floats()})


@case
def a_transposed_convolution() -> Any:
    return one("ConvTranspose", {"x": floats(1, 2, 5, 5)}, {"w": floats(2, 3, 3, 3)}, strides=[2, 2])


@case
def a_softmax_of_long_rows() -> Any:
    return one("Softmax", {"x": floats(4, 3_000)}, axis=1)


@case
def half_precision() -> Any:
    return one("MatMul", {"x": floats(8, 64).astype("float16")}, {"w": floats(64, 16).astype("float16")})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all networks compiled on a lane, and their outputs on a GPU."""
    folder = tmp_path_factory.mktemp("networks")
    for number, (network, inputs) in enumerate(CASES.values()):
        onnx.save(network, folder / f"{number}.onnx")
        np.savez(folder / f"{number}.npz", **inputs)
    machine = fakecuda.Machine(folder / "machine", "NVIDIA H200:90:141")
    lane = machine.python("-c", LANE, str(folder))
    assert lane.returncode == 0, lane.stderr[-3_000:]
    assert not [line for line in machine.log() if line.startswith("opened")], "a lane opens no GPU"
    device = machine.python("-c", DEVICE, str(folder), machine.uuid(0))
    assert device.returncode == 0, device.stderr[-3_000:]
    return folder


@pytest.mark.parametrize("build", ["default", "tuned"])
@pytest.mark.parametrize("name", CASES)
def test_a_network_on_a_gpu_has_the_outputs_of_onnx(folder: Path, name: str, build: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    number = list(CASES).index(name)
    network, inputs = CASES[name]
    expected = onnxruntime.InferenceSession(network.SerializeToString()).run(None, inputs)
    with np.load(folder / f"{number}-{build}.out.npz") as found:
        outputs = [found[key] for key in found.files]
    for got, want in zip(outputs, expected, strict=True):
        assert got.shape == want.shape
        if want.dtype == np.uint8:  # a tie may be rounded to either side
            np.testing.assert_allclose(got.astype("int16"), want.astype("int16"), atol=1)
            continue
        tolerance = 2e-3 if want.dtype == np.float16 else 1e-5
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * (np.abs(want).max() + 1e-9))


def test_each_kernel_of_a_network_is_scheduled(folder: Path) -> None:
    for side in folder.glob("*-tuned.json"):
        assert set(json.loads(side.read_text())["kernels"].values()) <= {"by rule"}, side
