"""A network as a model of Triton's Python backend.

Put this file and net.asn into MODELS/NAME/1/, and start  tritonserver --model-repository MODELS.  No config.pbtxt is
needed: inputs and outputs are those of the network. The server's Python needs autosched-runtime and NumPy.
"""

from pathlib import Path
from typing import Any

import triton_python_backend_utils as pb_utils

import autosched_runtime

NETWORK = Path(__file__).with_name("net.asn")
TYPES = {
    "bool": "BOOL", "float16": "FP16", "float32": "FP32", "float64": "FP64",
    **{f"{kind}int{bits}": f"{kind.upper()}INT{bits}" for kind in ("", "u") for bits in (8, 16, 32, 64)},
}  # fmt: skip
"""Triton's names of types."""


class TritonPythonModel:
    """The model, whose methods Triton calls."""

    @staticmethod
    def auto_complete_config(config: Any) -> Any:
        """Adds the inputs and outputs of the network, whose sizes that vary are -1, to the configuration."""
        network = autosched_runtime.load(NETWORK)
        for tensor in network.description.inputs:
            config.add_input(_described(tensor))
        for tensor in network.description.outputs:
            config.add_output(_described(tensor))
        config.set_max_batch_size(0)
        return config

    def initialize(self, args: dict[str, str]) -> None:
        """Loads the network."""
        self.network = autosched_runtime.load(NETWORK)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answers each request by itself."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        description = self.network.description
        try:
            arrays = {
                tensor.name: pb_utils.get_input_tensor_by_name(request, tensor.name).as_numpy()
                for tensor in description.inputs
            }
            outputs = self.network.run(arrays)
        except autosched_runtime.NetworkError as error:
            return pb_utils.InferenceResponse(output_tensors=[], error=pb_utils.TritonError(str(error)))
        tensors = [pb_utils.Tensor(one.name, array) for one, array in zip(description.outputs, outputs, strict=True)]
        return pb_utils.InferenceResponse(output_tensors=tensors)

    def finalize(self) -> None:
        """Frees the network."""
        self.network.close()


def _described(tensor: Any) -> dict[str, Any]:
    return {"name": tensor.name, "data_type": f"TYPE_{TYPES[tensor.dtype]}", "dims": list(tensor.shape)}
