"""Quantises float networks with ONNX Runtime's tool and its defaults, with per-channel scales."""

import tempfile
from pathlib import Path
from typing import Any

import onnx

SAMPLES = 8
"""Number of generated inputs that determine the ranges of activations."""
OPSET = 13
"""First opset with per-channel scales."""


def quantise(model: Path, out: Path, how: str, shapes: dict[str, tuple[int, ...]]) -> None:
    """Writes the quantised network. `how`: "qdq" or "dynamic". Raises ModelRejected."""
    from onnxruntime.quantization import QuantType, quantize_dynamic, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    with tempfile.TemporaryDirectory(prefix="autosched-quantise-") as temporary:
        fixed, ready = Path(temporary) / "fixed.onnx", Path(temporary) / "ready.onnx"
        onnx.save(_fixed(model, shapes), fixed)
        quant_pre_process(str(fixed), str(ready), skip_symbolic_shape=True)
        if how == "dynamic":
            quantize_dynamic(str(ready), str(out), per_channel=True, weight_type=QuantType.QInt8)
        else:
            quantize_static(
                str(ready), str(out), _samples(model, shapes), per_channel=True, activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8,
            )  # fmt: skip


def _fixed(model: Path, shapes: dict[str, tuple[int, ...]]) -> Any:
    """Returns the network with its fixed shapes, and operators that support quantised tensors."""
    from autosched_tvm.compile.frontend import node_builder, preparation
    from autosched_tvm.evaluation import model_forms

    made = model_forms.with_shapes(onnx.load(model), shapes)
    inputs = preparation.inputs_of(made)
    del made.graph.input[:]
    made.graph.input.extend(inputs)
    made.ir_version = max(made.ir_version, 8)
    return made if node_builder.opset_of(made) >= OPSET else onnx.version_converter.convert_version(made, OPSET)


def _samples(model: Path, shapes: dict[str, tuple[int, ...]]) -> Any:
    """Returns inputs such as the network is measured with."""
    from onnxruntime.quantization import CalibrationDataReader

    from autosched_tvm.compile import model_sources
    from autosched_tvm.generated_inputs import random_inputs

    wanted = model_sources.prepare(model, shapes).source.inputs

    class Samples(CalibrationDataReader):  # type: ignore[misc]  # has no types
        def __init__(self) -> None:
            self._seeds = iter(range(1, SAMPLES + 1))

        def get_next(self) -> Any:
            seed = next(self._seeds, None)
            return None if seed is None else random_inputs(wanted, seed)

    return Samples()
