"""Correct outputs of an ONNX model that ONNX Runtime cannot run, by the reference implementation of the onnx package.

It is slow, so that it runs one sample, in a process of its own with a time limit:
``python -m autosched_tvm.evaluation.standard_reference MODEL FOLDER`` reads FOLDER/inputs-0.npz and so on, and writes
FOLDER/outputs-0.npz and so on.
"""

import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from autosched.process import isolated_python
from autosched_tvm.evaluation.onnx_reference import PERTURBED_RUNS, perturbed_inputs
from autosched_tvm.evaluation.output_comparison import Expected
from autosched_tvm.tensors import Array

LIMIT_S = 120.0
"""Maximum seconds for all samples together."""


class StandardReference:
    """One model in the reference implementation. Raises RuntimeError for a model that it cannot run in time."""

    name = f"the reference implementation of onnx {onnx.__version__}"
    samples_max = 1

    def __init__(self, path: Path, inputs: Mapping[str, Array]) -> None:
        self._path, self.notes = path, list[str]()
        self.names = [value.name for value in onnx.load(str(path), load_external_data=False).graph.output]
        moved = [perturbed_inputs(inputs, np.random.default_rng(number)) for number in range(PERTURBED_RUNS)]
        self._outputs = _run(path, [inputs, *moved])

    def expected(self, _inputs: Mapping[str, Array], _seed: int = 0, *, alone: bool = False) -> Expected:
        """Returns the outputs for the sample. `alone`: without other correct results."""
        first, *others = self._outputs
        return Expected(tuple(first)) if alone else Expected(tuple(first), tuple(map(tuple, others)))


def _run(model: Path, samples: Sequence[Mapping[str, Array]]) -> list[list[Array]]:
    with tempfile.TemporaryDirectory(prefix="autosched-reference-") as folder:
        for number, inputs in enumerate(samples):
            np.savez(Path(folder) / f"inputs-{number}.npz", **inputs)  # type: ignore[arg-type]
        command = isolated_python.command("autosched_tvm.evaluation.standard_reference", str(model), folder)
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"it takes longer than {LIMIT_S:.0f} s") from None
        if done.returncode:
            said = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
            raise RuntimeError(said[0][:200])
        return [_read(Path(folder) / f"outputs-{number}.npz") for number in range(len(samples))]


def _read(path: Path) -> list[Array]:
    with np.load(path) as file:
        return [file[f"arr_{number}"] for number in range(len(file.files))]


def main(model: str, folder: str) -> None:
    """Runs the model on all samples of the folder."""
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(model)
    known = set(evaluator.input_names)
    for path in sorted(Path(folder).glob("inputs-*.npz")):
        with np.load(path) as file:
            outputs = evaluator.run(None, {name: array for name, array in file.items() if name in known})
        np.savez(path.with_name(path.name.replace("inputs", "outputs")), *map(np.asarray, outputs))


if __name__ == "__main__":
    main(*sys.argv[1:])
