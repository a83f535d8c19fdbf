"""Engines for other models than ONNX files: LiteRT for TFLite files, PyTorch for its programs."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from autosched_tvm.tensors import Array


class LiteRtEngine:
    """A TFLite file in LiteRT, with its defaults except for the number of threads."""

    def __init__(self, model: Path, threads: int, *, optimised: bool = True) -> None:
        """`optimised=False` uses its plain kernels, which gives a second opinion on the outputs.

        Raises ImportError without the extra [tflite], and LiteRT's exceptions for a model that it refuses.
        """
        from importlib.metadata import version

        from ai_edge_litert import interpreter as litert

        self.version = version("ai-edge-litert")
        plain = litert.OpResolverType.BUILTIN_REF
        usual = litert.OpResolverType.AUTO
        self._interpreter = litert.Interpreter(
            str(model), num_threads=threads, experimental_op_resolver_type=usual if optimised else plain
        )
        self._interpreter.allocate_tensors()
        self._inputs = {one["name"]: one["index"] for one in self._interpreter.get_input_details()}
        self._outputs = [one["index"] for one in self._interpreter.get_output_details()]

    @property
    def quantised(self) -> bool:
        """Whether it computes with quantised numbers."""
        found = self._interpreter.get_tensor_details()
        return any(
            np.dtype(one["dtype"]).kind in "iu" and one["quantization_parameters"]["scales"].size for one in found
        )

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """Returns the outputs in order."""
        self.bind(inputs)
        self.call()
        return [np.array(self._interpreter.get_tensor(index)) for index in self._outputs]

    def bind(self, inputs: Mapping[str, Array]) -> None:
        """Sets the inputs of the measured calls."""
        for name, array in inputs.items():
            self._interpreter.set_tensor(self._inputs[name], array)

    def call(self) -> object:
        """Runs one inference with the bound inputs."""
        return self._interpreter.invoke()


class TorchEngine:
    """An exported program in PyTorch, with its defaults except for the number of threads."""

    quantised = False

    def __init__(self, model: Path, threads: int, *, optimised: bool = True) -> None:
        """`optimised=False` turns off oneDNN, which gives a second opinion on the outputs.

        Raises ImportError without the extra [torch], and PyTorch's exceptions for a file that it refuses.
        """
        from autosched_tvm.compile import torch_import

        os.environ["OMP_NUM_THREADS"] = str(threads)
        torch = torch_import.package()
        torch.set_num_threads(threads)
        torch.backends.mkldnn.enabled = optimised
        self.version = str(torch.__version__)
        program = torch.export.load(str(model))
        self._names = [str(name) for name in program.graph_signature.user_inputs]
        self._torch, self._module = torch, program.module()
        self._given: list[Any] = []

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """Returns the outputs in order."""
        self.bind(inputs)
        leaves, _ = self._torch.utils._pytree.tree_flatten(self.call())
        return [leaf.detach().numpy() for leaf in leaves]

    def bind(self, inputs: Mapping[str, Array]) -> None:
        """Sets the inputs of the measured calls."""
        self._given = [self._torch.from_numpy(np.asarray(inputs[name], order="C")) for name in self._names]

    def call(self) -> object:
        """Runs one inference with the bound inputs."""
        with self._torch.inference_mode():
            return self._module(*self._given)
