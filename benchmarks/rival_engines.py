"""Inference engines besides ONNX Runtime: OpenVINO, ncnn and MNN, each in float32 on a number of threads.

They implement `autosched_tvm.evaluation.engines.Engine` and are loaded in an engine's own process. An engine's package
is imported when the engine is loaded and may be missing. The converters of ncnn and MNN run as separate programs.
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from autosched_tvm.evaluation import engines
from autosched_tvm.tensors import Array

CONVERT_TIMEOUT_S = 300.0
"""Maximum time for converting one model, in seconds."""
LOAD = "rival_engines:load"
"""Name of `load` for an engine's process."""
PNNX_TYPES = {"float32": "f32", "float16": "f16", "int64": "i64", "int32": "i32", "uint8": "u8", "int8": "i8"}


class OpenVino:
    """OpenVINO on the CPU, set for the latency of one request."""

    def __init__(self, model: Path, inputs: Mapping[str, Array], threads: int) -> None:
        import openvino as ov

        self.version = version("openvino")
        self._tensor = ov.Tensor
        core = ov.Core()
        network = core.read_model(str(model))
        settings = {
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": "1",
            "INFERENCE_NUM_THREADS": str(threads),
            "INFERENCE_PRECISION_HINT": "f32",
            "ENABLE_CPU_PINNING": "NO",  # the process is pinned already
        }
        self._compiled = core.compile_model(network, "CPU", settings)
        self._request = self._compiled.create_infer_request()
        self._known = {name for value in network.inputs for name in value.get_names()}
        self.bind(inputs)

    def bind(self, inputs: Mapping[str, Array]) -> None:
        """Sets the inputs."""
        for name, array in inputs.items():
            if name in self._known:
                self._request.set_tensor(name, self._tensor(array))

    def call(self) -> object:
        """Runs one inference."""
        return self._request.infer()

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """Returns the outputs in order."""
        self.bind(inputs)
        self._request.infer()
        return [np.array(self._request.get_output_tensor(i).data) for i in range(len(self._compiled.outputs))]


class Ncnn:
    """ncnn, with the model converted by pnnx. Winograd and packed layouts are on, as by default."""

    def __init__(self, model: Path, inputs: Mapping[str, Array], threads: int) -> None:
        import ncnn

        self.version = version("ncnn")
        self._mat = ncnn.Mat
        shapes = ",".join(f"[{','.join(map(str, a.shape))}]{PNNX_TYPES[str(a.dtype)]}" for a in inputs.values())
        with tempfile.TemporaryDirectory(prefix="pnnx-") as folder:
            copied, param, weights = (Path(folder) / name for name in ("net.onnx", "net.param", "net.bin"))
            copied.write_bytes(model.read_bytes())
            _convert([
                _pnnx(), str(copied), f"inputshape={shapes}", f"ncnnparam={param}", f"ncnnbin={weights}", "fp16=0",
            ], Path(folder))  # fmt: skip
            self._net = ncnn.Net()
            self._net.opt.num_threads = threads
            for name in ("use_fp16_packed", "use_fp16_storage", "use_fp16_arithmetic", "use_bf16_storage"):
                setattr(self._net.opt, name, False)
            if self._net.load_param(str(param)) or self._net.load_model(str(weights)):
                raise RuntimeError("ncnn cannot load what pnnx made of the model")
        self.bind(inputs)

    def bind(self, inputs: Mapping[str, Array]) -> None:
        """Sets the inputs; ncnn has no batch dimension."""
        self._mats = [
            self._mat(np.ascontiguousarray(a[0] if a.ndim > 1 and a.shape[0] == 1 else a)).clone()
            for a in (b.astype("int32") if b.dtype == np.int64 else b for b in inputs.values())
        ]

    def call(self) -> list[Any]:
        """Runs one inference."""
        extractor = self._net.create_extractor()
        for name, mat in zip(self._net.input_names(), self._mats, strict=True):
            extractor.input(name, mat)
        found = []
        for name in self._net.output_names():
            status, value = extractor.extract(name)
            if status:
                raise RuntimeError(f"ncnn cannot compute {name}: status {status}")
            found.append(value)
        return found

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """Returns the outputs in order."""
        self.bind(inputs)
        return [np.array(value) for value in self.call()]


MNN_CONVERT = "import sys, MNN, _tools; _tools.mnnconvert(sys.argv)"
"""MNN's converter without its wrapper program, which installs a package with pip to report conversions, and an older
protobuf with it."""


class Mnn:
    """MNN, with the model converted by its own converter."""

    def __init__(self, model: Path, inputs: Mapping[str, Array], threads: int) -> None:
        import MNN
        import onnx

        self.version = version("MNN")
        self._outputs = [value.name for value in onnx.load(str(model), load_external_data=False).graph.output]
        self._mnn = MNN
        with tempfile.TemporaryDirectory(prefix="mnn-") as folder:
            converted = Path(folder) / "net.mnn"
            _convert([
                sys.executable, "-c", MNN_CONVERT, "-f", "ONNX", "--modelFile", str(model),
                "--MNNModel", str(converted), "--bizCode", "autosched",
            ], Path(folder))  # fmt: skip
            self._interpreter = MNN.Interpreter(str(converted))
        self._session = self._interpreter.createSession({"numThread": threads, "backend": "CPU", "precision": "high"})
        self._inputs = self._interpreter.getSessionInputAll(self._session)
        for name, array in inputs.items():
            if name in self._inputs:
                self._interpreter.resizeTensor(self._inputs[name], tuple(array.shape))
        self._interpreter.resizeSession(self._session)
        self.bind(inputs)

    def bind(self, inputs: Mapping[str, Array]) -> None:
        """Sets the inputs."""
        kinds = {self._mnn.Halide_Type_Float: "float32", self._mnn.Halide_Type_Int: "int32",
                 self._mnn.Halide_Type_Uint8: "uint8"}  # fmt: skip
        for name, array in inputs.items():
            if name in self._inputs:
                kind = self._inputs[name].getDataType()
                given = np.ascontiguousarray(array.astype(kinds[kind]))
                layout = self._mnn.Tensor_DimensionType_Caffe
                self._inputs[name].copyFrom(self._mnn.Tensor(tuple(array.shape), kind, given, layout))

    def call(self) -> object:
        """Runs one inference."""
        return self._interpreter.runSession(self._session)

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """Returns the outputs in order."""
        self.bind(inputs)
        self.call()
        found = []
        values = self._interpreter.getSessionOutputAll(self._session)
        for value in (values[name] for name in self._outputs):
            shape, kind = value.getShape(), value.getDataType()
            dtype = "float32" if kind == self._mnn.Halide_Type_Float else "int32"
            host = self._mnn.Tensor(shape, kind, np.zeros(shape, dtype), self._mnn.Tensor_DimensionType_Caffe)
            value.copyToHostTensor(host)
            found.append(np.array(host.getData()).reshape(shape))
        return found


class Rival(engines.Engine, Protocol):
    """An engine that reports the version of its package."""

    version: str


RIVALS: dict[str, Callable[[Path, Mapping[str, Array], int], Rival]] = {
    "openvino": OpenVino,
    "ncnn": Ncnn,
    "mnn": Mnn,
}
"""Engine class by name; each is opened with (model file, first inputs, number of threads)."""


def load(name: str, model: str, inputs: Mapping[str, Array], threads: int) -> str:
    """Loads an engine into this process, with its first inputs; returns the version of its package."""
    engine = RIVALS[name](Path(model), inputs, threads)
    engines.hold(engine)
    return engine.version


def _pnnx() -> str:
    """Returns the converter's path without importing its package, which needs PyTorch."""
    spec = find_spec("pnnx")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("pnnx is not installed: pip install --no-deps pnnx")
    return str(Path(spec.origin).parent / "pnnx")


def _convert(command: list[str], folder: Path) -> None:
    """Runs a converter; its last lines are the error."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=CONVERT_TIMEOUT_S)
    if done.returncode:
        name = next(Path(word).name for word in command if word not in (sys.executable, "-m"))
        said = (done.stdout + done.stderr).strip().splitlines()[-3:]
        raise RuntimeError(f"{name} failed: {' | '.join(said)}")
