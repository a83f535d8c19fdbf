"""Correct outputs of other models than ONNX files: by LiteRT for TFLite files, by PyTorch for its programs."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from autosched_tvm.compile.frontend.model_file import FileKind
from autosched_tvm.evaluation.non_onnx_engines import LiteRtEngine, TorchEngine
from autosched_tvm.evaluation.onnx_reference import PERTURBED_RUNS, perturbed_inputs
from autosched_tvm.evaluation.output_comparison import Expected
from autosched_tvm.tensors import Array

OTHER_NAMES = {FileKind.TFLITE: "LiteRT", FileKind.TORCH: "PyTorch"}
"""Name of the engine by file format."""
_ENGINES: dict[FileKind, Callable[..., LiteRtEngine | TorchEngine]] = {
    FileKind.TFLITE: LiteRtEngine,
    FileKind.TORCH: TorchEngine,
}


class OtherReference:
    """One model in the engine for its format, in several correct forms. Raises the engine's exceptions, and
    ImportError."""

    def __init__(self, path: Path, kind: FileKind, threads: int) -> None:
        self._plain = _ENGINES[kind](path, threads, optimised=False)
        self._usual = _ENGINES[kind](path, threads)
        self.name = f"{OTHER_NAMES[kind]} {self._usual.version}"
        self.notes: list[str] = []
        self.names: list[str] = []
        """Names of the outputs, which these engines do not report."""
        self.exact = not self._usual.quantised
        """Whether it computes in floating point, as builds do."""

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """Returns the outputs in order."""
        return self._usual.run(inputs)

    def expected(self, inputs: Mapping[str, Array], seed: int = 0, *, alone: bool = False) -> Expected:
        """Returns the outputs for one sample of inputs. `alone`: without other correct results."""
        if alone:
            return Expected(tuple(self._usual.run(inputs)))
        others = [tuple(self._plain.run(inputs))]
        for number in range(PERTURBED_RUNS):
            moved = perturbed_inputs(inputs, np.random.default_rng([seed, number]))
            others.append(tuple(self._usual.run(moved)))
        return Expected(tuple(self._usual.run(inputs)), tuple(others))
