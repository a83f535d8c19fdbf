"""TFLite files against LiteRT. Needs the extra [tflite]."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tflite", reason="the extra [tflite] is not installed")
pytest.importorskip("ai_edge_litert", reason="the extra [tflite] is not installed")

import tvm
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter
from tvm import relax

from autosched import backend
from autosched.errors import ModelRejected, RequestError
from autosched.model import JobSpec
from autosched_tvm.compile import model_sources
from autosched_tvm.compile.frontend.model_file import FileKind
from autosched_tvm.evaluation.non_onnx_reference import OtherReference

pytestmark = [pytest.mark.tvm, pytest.mark.filterwarnings("ignore")]  # LiteRT warns about its own packages
RANDOM = np.random.default_rng(4)
TYPES = {"float32": 0, "int32": 2, "int8": 9}


class File:
    """A TFLite file under construction."""

    def __init__(self) -> None:
        self.tensors: list[Any] = []
        self.buffers = [schema.BufferT()]
        self.operators: list[Any] = []
        self.codes: list[int] = []

    def tensor(self, name: str, shape: Any, kind: str = "float32", value: Any = None, **quantised: Any) -> int:
        """Adds a tensor; returns its number. `scale`, `zero` and `axis` make it a quantised one."""
        made = schema.TensorT()
        made.name, made.shape, made.type, made.buffer = name, list(shape), TYPES[kind], 0
        if value is not None:
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(np.asarray(value, kind).tobytes(), "uint8")
            made.buffer = len(self.buffers)
            self.buffers.append(buffer)
        if quantised:
            made.quantization = schema.QuantizationParametersT()
            made.quantization.scale = np.atleast_1d(np.asarray(quantised["scale"], "float32"))
            made.quantization.zeroPoint = np.atleast_1d(np.asarray(quantised["zero"], "int64"))
            made.quantization.quantizedDimension = quantised.get("axis", 0)
        self.tensors.append(made)
        return len(self.tensors) - 1

    def operator(self, name: str, inputs: list[int], outputs: list[int], options: Any = None, kind: int = 0) -> None:
        """Adds an operator."""
        made = schema.OperatorT()
        number = getattr(schema.BuiltinOperator, name)
        if number not in self.codes:
            self.codes.append(number)
        made.opcodeIndex, made.inputs, made.outputs = self.codes.index(number), inputs, outputs
        made.builtinOptions, made.builtinOptionsType = options, kind
        self.operators.append(made)

    def write(self, path: Path, inputs: list[int], outputs: list[int]) -> Path:
        """Writes the file."""
        import flatbuffers

        graph, model = schema.SubGraphT(), schema.ModelT()
        graph.tensors, graph.operators, graph.inputs, graph.outputs = self.tensors, self.operators, inputs, outputs
        model.version, model.subgraphs, model.buffers = 3, [graph], self.buffers
        model.operatorCodes = []
        for number in self.codes:
            code = schema.OperatorCodeT()
            code.builtinCode, code.version = number, 1  # in the newer field alone, as some tools write it
            model.operatorCodes.append(code)
        builder = flatbuffers.Builder(1024)
        builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
        path.write_bytes(bytes(builder.Output()))
        return path


def conv_options() -> tuple[Any, int]:
    options = schema.Conv2DOptionsT()
    options.padding, options.strideW, options.strideH = schema.Padding.SAME, 1, 1
    options.fusedActivationFunction = schema.ActivationFunctionType.RELU
    return options, schema.BuiltinOptions.Conv2DOptions


def float_net(path: Path) -> Path:
    """A convolution; an expanded dimension; a reshape to a computed shape."""
    file = File()
    x = file.tensor("x", [1, 8, 8, 3])
    w = file.tensor("w", [4, 3, 3, 3], value=RANDOM.standard_normal((4, 3, 3, 3)))
    b = file.tensor("b", [4], value=RANDOM.standard_normal(4))
    c = file.tensor("c", [1, 8, 8, 4])
    file.operator("CONV_2D", [x, w, b], [c], *conv_options())
    axis = file.tensor("axis", [1], "int32", [1])
    e = file.tensor("e", [1, 1, 8, 8, 4])
    file.operator("EXPAND_DIMS", [c, axis], [e], schema.ExpandDimsOptionsT(), schema.BuiltinOptions.ExpandDimsOptions)
    shape = file.tensor("shape", [4], "int32")
    options = schema.ShapeOptionsT()
    options.outType = TYPES["int32"]
    file.operator("SHAPE", [c], [shape], options, schema.BuiltinOptions.ShapeOptions)
    y = file.tensor("y", [1, 8, 8, 4])
    file.operator("RESHAPE", [e, shape], [y], schema.ReshapeOptionsT(), schema.BuiltinOptions.ReshapeOptions)
    return file.write(path, [x], [y])


def integer_net(path: Path) -> Path:
    """A quantised convolution between QUANTIZE and DEQUANTIZE; the integers are an output, too."""
    file = File()
    x = file.tensor("x", [1, 8, 8, 3])
    q = file.tensor("q", [1, 8, 8, 3], "int8", scale=0.03, zero=-3)
    file.operator("QUANTIZE", [x], [q], schema.QuantizeOptionsT(), schema.BuiltinOptions.QuantizeOptions)
    steps = np.linspace(0.005, 0.01, 4)
    w = file.tensor(
        "w", [4, 3, 3, 3], "int8", RANDOM.integers(-127, 127, (4, 3, 3, 3)), scale=steps, zero=np.zeros(4), axis=0
    )
    b = file.tensor("b", [4], "int32", RANDOM.integers(-900, 900, 4), scale=steps * 0.03, zero=np.zeros(4))
    c = file.tensor("c", [1, 8, 8, 4], "int8", scale=0.04, zero=-128)
    file.operator("CONV_2D", [q, w, b], [c], *conv_options())
    y = file.tensor("y", [1, 8, 8, 4])
    file.operator("DEQUANTIZE", [c], [y], schema.DequantizeOptionsT(), schema.BuiltinOptions.DequantizeOptions)
    return file.write(path, [x], [y, c])


def results(path: Path, x: Any) -> tuple[list[Any], list[Any]]:
    """Returns the outputs of LiteRT and of TVM."""
    interpreter = Interpreter(str(path))
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x)
    interpreter.invoke()
    expected = [interpreter.get_tensor(one["index"]) for one in interpreter.get_output_details()]
    target = tvm.target.Target("llvm")
    with target:
        executable = tvm.compile(model_sources.prepare(path, {}).source.cleaned(target), target)
    found = relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(x))
    return expected, [found.numpy()] if hasattr(found, "numpy") else [one.numpy() for one in found]


def test_a_float_network_has_the_outputs_of_litert(tmp_path: Path) -> None:
    path = float_net(tmp_path / "net.tflite")
    (expected,), (found,) = results(path, RANDOM.standard_normal((1, 8, 8, 3)).astype("float32"))
    assert expected.std() > 0
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    ready = model_sources.prepare(path, {})
    assert (ready.format, ready.source.outputs, ready.nodes_before) == ("TFLite schema 3", ("y",), 4)
    assert ready.source.inputs[0].shape == (1, 8, 8, 3)


def test_litert_is_measured_as_the_baseline_and_an_early_build_against_it(tmp_path: Path) -> None:
    """Runs a real session; a TFLite job once had no rival before its end."""
    job = JobSpec(name="net", model="0" * 64, file="net.tflite", backend="ansor")
    model = float_net(tmp_path / "net.tflite")
    session: Any = backend.load("ansor").open(job, model, tmp_path / "work", tmp_path / "out", 1)
    lease = backend.Lease("baseline", ("cpu0",), (min(os.sched_getaffinity(0)),), 300.0)
    try:
        session.import_network(lease)
        found = session.baseline(lease)
        assert found is not None
        assert (found.runtime, found.form) == ("LiteRT", "as it is")
        session.compile_early([], lease)
        evaluation = session.evaluate_early(lease)
        assert {timing.name for timing in evaluation.timings} == {"tuned", "litert"}
        assert evaluation.reference.startswith("LiteRT")
    finally:
        session.kill()


def test_a_quantised_network_is_within_its_steps_of_litert(tmp_path: Path) -> None:
    path = integer_net(tmp_path / "net.tflite")
    expected, found = results(path, RANDOM.standard_normal((1, 8, 8, 3)).astype("float32"))
    assert expected[0].std() > 0
    step = 0.04 / 2 + 27 * 127 * 0.01 * 0.03 / 2 / 4  # a quarter of the possible error of all inputs together
    assert np.abs(found[0] - expected[0]).max() <= step
    assert found[1].dtype == np.int8
    assert np.abs(found[1].astype(int) - expected[1].astype(int)).max() <= step / 0.04 + 1
    assert any("made float" in fix for fix in model_sources.prepare(path, {}).fixes)


def test_a_shape_other_than_that_of_the_file_is_refused(tmp_path: Path) -> None:
    path = float_net(tmp_path / "net.tflite")
    with pytest.raises(RequestError, match="convert the model again"):
        model_sources.prepare(path, {"x": (2, 8, 8, 3)})
    with pytest.raises(RequestError, match="no input 'z'"):
        model_sources.prepare(path, {"z": (1,)})


@pytest.mark.parametrize("share", [0.3, 0.9])
def test_a_cut_file_is_refused(share: float, tmp_path: Path) -> None:
    path = float_net(tmp_path / "net.tflite")
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(ModelRejected, match=r"net\.tflite"):
        model_sources.prepare(path, {})


def test_litert_is_the_reference_unless_it_computes_with_integers(tmp_path: Path) -> None:
    given = {"x": RANDOM.standard_normal((1, 8, 8, 3)).astype("float32")}
    reference = OtherReference(float_net(tmp_path / "net.tflite"), FileKind.TFLITE, 1)
    assert reference.exact
    assert reference.name.startswith("LiteRT ")
    expected = reference.expected(given)
    for other in expected.others:
        np.testing.assert_allclose(other[0], expected.outputs[0], rtol=1e-4, atol=1e-4)
    assert not OtherReference(integer_net(tmp_path / "int.tflite"), FileKind.TFLITE, 1).exact
