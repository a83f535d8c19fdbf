"""Engines that run a whole network: a compiled module, ONNX Runtime, LiteRT, PyTorch.

These functions run in an engine's own process, which `autosched_tvm.evaluation.engine_benchmark` controls. In one
process the engines would disturb each other: ONNX Runtime's idle threads spin for some 50 ms after each inference.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from autosched.backend import OperatorTimes
from autosched.errors import RequestError
from autosched_tvm.device.loaded_module import LoadedModule
from autosched_tvm.device.place import BoardSession, Place, losses_told, place_of
from autosched_tvm.evaluation.board_rival import BoardOnnxRuntime
from autosched_tvm.tensors import Array
from autosched_tvm.worker_messages import Elsewhere, Remote


class Engine(Protocol):
    """One network, loaded."""

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """Returns the outputs in order."""

    def bind(self, inputs: Mapping[str, Array]) -> None:
        """Sets the inputs of the measured calls."""

    def call(self) -> object:
        """Runs one inference with the bound inputs."""


class ModuleEngine:
    """A module that TVM compiled."""

    def __init__(self, path: Path, place: Place | None = None) -> None:
        """`place`: where it runs; None: in this process."""
        self._module = LoadedModule(path, place=place)
        self.is_remote = place is not None
        self._inputs: Mapping[str, Array] = {}
        self._bound: Any = None

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """Returns the outputs in order. Raises RequestError for inputs that do not fit."""
        return self._module.run(inputs)

    def bind(self, inputs: Mapping[str, Array]) -> None:
        """Sets the inputs of the measured calls."""
        self._inputs, self._bound = inputs, self._module.bind(inputs)

    def call(self) -> None:
        """Runs one inference with the bound inputs."""
        self._module.call(self._bound)

    def sample(self, number: int) -> float:
        """Returns the mean latency of a number of calls, in seconds, by the clock of the machine that runs them."""
        return self._module.sample(self._bound, number)

    def operators(self, budget_s: float) -> OperatorTimes:
        """Returns the time of each operator in an inference with the bound inputs."""
        from autosched_tvm.device.operator_profiling import measured

        return measured(self._module, self._inputs, budget_s)


class OnnxRuntimeEngine:
    """An ONNX file in ONNX Runtime, with its defaults except for the number of threads."""

    def __init__(self, model: Path, threads: int, *, optimised: bool = True) -> None:
        """`optimised=False` turns the graph optimisations off, which gives a second opinion on the outputs."""
        import onnxruntime

        self.version = str(onnxruntime.__version__)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 4
        if not optimised:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        self._session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        self._names = [output.name for output in self._session.get_outputs()]
        self._binding: Any = None

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """Returns the outputs in order."""
        return [np.asarray(value) for value in self._session.run(self._names, dict(inputs))]

    def bind(self, inputs: Mapping[str, Array]) -> None:
        """Sets the inputs of the measured calls."""
        self._binding = self._session.io_binding()
        for name, array in inputs.items():
            self._binding.bind_cpu_input(name, array)
        for name in self._names:
            self._binding.bind_output(name)

    def call(self) -> object:
        """Runs one inference with the bound inputs."""
        return self._session.run_with_iobinding(self._binding)


_loaded: dict[int, Engine] = {}
"""Engine by number. Engines on a board share a session, and therefore a process."""
_turn = [0]
"""Number of the engine to which the next calls go."""


def hold(engine: Engine) -> None:
    """Registers an engine under the current number."""
    _loaded[_turn[0]] = engine


def choose(number: int) -> None:
    """Directs the next calls to the engine of a number."""
    _turn[0] = number


def forget(number: int) -> None:
    """Drops the engine of a number."""
    engine = _loaded.pop(number, None)
    if isinstance(engine, BoardOnnxRuntime):
        with losses_told():
            engine.end()


def _engine() -> Engine:
    return _loaded[_turn[0]]


def load_module(path: str, remote: Elsewhere | None = None) -> None:
    """Loads a compiled module, here, on a GPU or on a board. Raises RequestError, and DeviceLost."""
    if remote is None:
        return hold(ModuleEngine(Path(path)))
    with place_of(remote) as place:
        hold(ModuleEngine(Path(path), place))


def load_onnxruntime(model: str, threads: int, optimised: bool) -> str:
    """Loads an ONNX file; returns the version of ONNX Runtime. Raises ONNX Runtime's exceptions, and ImportError."""
    engine = OnnxRuntimeEngine(Path(model), threads, optimised=optimised)
    hold(engine)
    return engine.version


def load_onnxruntime_there(model: str, threads: int, remote: Remote) -> str:
    """Loads an ONNX file in ONNX Runtime on a board; returns its version. Raises ImportError, BoardEngineError, and
    DeviceLost."""
    with place_of(remote) as place:
        assert isinstance(place, BoardSession)
        engine = BoardOnnxRuntime(place, Path(model), threads)
    hold(engine)
    return engine.version


def load_litert(model: str, threads: int, optimised: bool) -> str:
    """Loads a TFLite file; returns the version of LiteRT. Raises LiteRT's exceptions, and ImportError."""
    from autosched_tvm.evaluation.non_onnx_engines import LiteRtEngine

    lite = LiteRtEngine(Path(model), threads, optimised=optimised)
    hold(lite)
    return lite.version


def load_pytorch(model: str, threads: int, optimised: bool) -> str:
    """Loads a PyTorch program; returns the version of PyTorch. Raises PyTorch's exceptions, and ImportError."""
    from autosched_tvm.evaluation.non_onnx_engines import TorchEngine

    torch = TorchEngine(Path(model), threads, optimised=optimised)
    hold(torch)
    return torch.version


def bind(inputs: Mapping[str, Array]) -> None:
    """Sets the inputs of the measured calls."""
    with losses_told():
        _engine().bind(inputs)


def run(inputs: Mapping[str, Array]) -> list[Array]:
    """Returns the outputs in order."""
    with losses_told():
        return _engine().run(inputs)


def operators(budget_s: float) -> OperatorTimes:
    """Returns the time of each operator of a compiled module, with the inputs of the measured calls."""
    engine = _engine()
    assert isinstance(engine, ModuleEngine), "only a compiled module can tell the times of its operators"
    if engine.is_remote:
        raise RequestError("the times of single operators are told by CPUs of this machine alone")
    return engine.operators(budget_s)


def sample(number: int, warm: int) -> float:
    """Returns the mean latency of `number` successive calls, in seconds, after `warm` unmeasured calls."""
    engine = _engine()
    if isinstance(engine, BoardOnnxRuntime):
        with losses_told():
            return engine.sample(number, warm)
    if isinstance(engine, ModuleEngine) and engine.is_remote:
        with losses_told():
            if warm:
                engine.sample(warm)
            return engine.sample(number)
    call = engine.call
    for _ in range(warm):
        call()
    started = time.perf_counter()
    for _ in range(number):
        call()
    return (time.perf_counter() - started) / number
