"""Correct outputs of an ONNX model that ONNX Runtime cannot run, by the reference implementation of the onnx package.

It is slow, so that it runs one sample, in a process of its own with the time limit of `isolated_run`:
``python -m autosched_tvm.evaluation.standard_reference MODEL FOLDER`` is used as that module is.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from autosched_tvm.evaluation import isolated_run
from autosched_tvm.evaluation.onnx_reference import PERTURBED_RUNS, perturbed_inputs
from autosched_tvm.evaluation.output_comparison import Expected
from autosched_tvm.tensors import Array


class StandardReference:
    """One model in the reference implementation. Raises `isolated_run.Crashed` if it cannot run the model in time."""

    name = f"the reference implementation of onnx {onnx.__version__}"
    samples_max = 1

    def __init__(self, path: Path, inputs: Mapping[str, Array]) -> None:
        self._path, self.notes = path, list[str]()
        self.names = [value.name for value in onnx.load(str(path), load_external_data=False).graph.output]
        moved = [perturbed_inputs(inputs, np.random.default_rng(number)) for number in range(PERTURBED_RUNS)]
        self._outputs = isolated_run.outputs(path, [inputs, *moved], __name__)

    def expected(self, _inputs: Mapping[str, Array], _seed: int = 0, *, alone: bool = False) -> Expected:
        """Returns the outputs for the sample. `alone`: without other correct results."""
        first, *others = self._outputs
        return Expected(tuple(first)) if alone else Expected(tuple(first), tuple(map(tuple, others)))


def main(model: str, folder: str) -> None:
    """Runs the model on all samples of the folder."""
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(model)
    known = set(evaluator.input_names)

    def run(inputs: dict[str, Array]) -> Sequence[Array]:
        outputs = evaluator.run(None, {name: array for name, array in inputs.items() if name in known})
        return [np.asarray(array) for array in outputs]

    isolated_run.answer_all(Path(folder), run)


if __name__ == "__main__":
    main(*sys.argv[1:])
