"""ONNX Runtime on a board, through the session that measures there. Runs in the process that holds the session."""

import io
import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from autosched_tvm.device.place import BoardSession
from autosched_tvm.evaluation import board_program
from autosched_tvm.tensors import Array

LIMIT_S = 120.0
"""Maximum time of one order in seconds: loading a model, or some inferences."""
_numbers = itertools.count()


class BoardEngineError(Exception):
    """ONNX Runtime on the board failed; the message gives the reason."""


class BoardOnnxRuntime:
    """An ONNX file in ONNX Runtime on a board."""

    def __init__(self, session: BoardSession, model: Path, threads: int) -> None:
        """Raises ImportError where the board lacks ONNX Runtime, BoardEngineError where it cannot run the model."""
        self._session, self._number = session, next(_numbers)
        session.write(f"model-{self._number}.onnx", model.read_bytes())
        answer = self._ask(do="load", model=f"model-{self._number}.onnx", threads=threads)
        self.version = f"{answer['version']} on the board"

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """Returns the outputs in order."""
        self._send(inputs)
        self._ask(do="run")
        with np.load(io.BytesIO(self._session.read("outputs.npz"))) as file:
            return [file[f"arr_{number}"] for number in range(len(file.files))]

    def bind(self, inputs: Mapping[str, Array]) -> None:
        """Sets the inputs of the measured calls."""
        self._send(inputs)
        self._ask(do="bind")

    def call(self) -> object:
        """Runs one inference with the bound inputs."""
        return self.sample(1, 0)

    def sample(self, number: int, warm: int) -> float:
        """Returns the mean latency of a number of calls, in seconds, by the board's clock."""
        return float(self._ask(do="sample", number=number, warm=warm)["latency_s"])

    def end(self) -> None:
        """Ends its process."""
        self._ask(do="end")

    def _send(self, inputs: Mapping[str, Array]) -> None:
        buffer = io.BytesIO()
        np.savez(buffer, **inputs)  # type: ignore[arg-type]
        self._session.write("inputs.npz", buffer.getvalue())

    def _ask(self, **order: Any) -> dict[str, Any]:
        order |= {"engine": self._number, "limit_s": LIMIT_S}
        self._session.write(board_program.ORDER, json.dumps(order).encode())
        self._session.run_python(Path(board_program.__file__).read_text())
        answer: dict[str, Any] = json.loads(self._session.read(board_program.ANSWER))
        if error := answer.get("error"):
            if answer["kind"] in ("ImportError", "ModuleNotFoundError"):
                raise ImportError(error)
            raise BoardEngineError(error)
        return answer
