"""Uses the float form of a quantised model as a reference, and compares it with the quantised model's own results.

See docs/decisions/008-quantised-networks.md.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from msgspec import Struct
from onnx import numpy_helper

from autosched_tvm.compile.frontend import standard_operators
from autosched_tvm.compile.frontend.dequantisation import Form
from autosched_tvm.tensors import Array

ROUNDING_FACTOR = 4.0
"""Maximum distance of the float form from the quantised results that rounding explains, in multiples of the distance
between the forms with and without rounding. All distances are root mean squares."""
PLAUSIBLE_SHARE = 0.3
"""Maximum distance that is always accepted, as a share of an output's standard deviation: 8-bit kernels saturate on
some CPUs, and generated inputs may lie outside the quantised range."""

SIGNED_WEIGHTS = {"MatMulInteger": ((1, 3),), "DynamicQuantizeLSTM": ((1, 9), (2, 11))}
"""Inputs with weights, and with their zero points, of operators that saturate."""

FLOATS = "compute in float32 and do not round activations"
INTEGERS = "multiply 8-bit numbers, and round activations as it does"
"""How builds compute, for messages."""

Run = Callable[[Any], Sequence[Array]]
"""Returns the outputs of an ONNX model for one sample of inputs."""


class Fidelity(Struct, frozen=True):
    """Distance of the float form from the quantised model."""

    explained: bool
    """Whether rounding explains the distance."""
    note: str


def float_form(model: onnx.ModelProto, *, integers: bool = False) -> onnx.ModelProto | None:
    """Returns the float form of a quantised model; None for a float model, and where it cannot be rewritten completely.

    `integers`: keep products of 8-bit integers.
    """
    if not standard_operators.is_quantised(model):
        return None
    form = _rewritten(model, Form.INTEGERS if integers else Form.REAL)
    if standard_operators.is_quantised(form, integers=integers):
        return None
    make_weights_unsigned(form)
    return form


def make_weights_unsigned(model: onnx.ModelProto) -> None:
    """Adds 128 to the constant signed weights of integer products, and to their zero points. ONNX Runtime's products of
    unsigned data and signed weights saturate on CPUs with AVX2 and without VNNI, in sessions without optimisations."""
    constants = {tensor.name: tensor for tensor in model.graph.initializer}

    def unsigned(name: str, values: Array) -> str:
        """Returns the name of the constant that is 128 larger, which nodes may share."""
        larger = f"{name}.unsigned"
        if larger not in constants:
            constants[larger] = numpy_helper.from_array((values.astype("int16") + 128).astype("uint8"), larger)
            model.graph.initializer.append(constants[larger])
        return larger

    for node in model.graph.node:
        for weights, zero in SIGNED_WEIGHTS.get(node.op_type, ()):
            found = constants.get(node.input[weights])
            known = node.input[zero] if len(node.input) > zero else ""
            if found is None or found.data_type != onnx.TensorProto.INT8 or (known and known not in constants):
                continue
            node.input.extend([""] * (zero + 1 - len(node.input)))
            node.input[weights] = unsigned(found.name, numpy_helper.to_array(found))
            start = numpy_helper.to_array(constants[known]) if known else np.zeros((), "int8")
            node.input[zero] = unsigned(known or f"{found.name}.zero", start)


def fidelity(model: onnx.ModelProto, form: onnx.ModelProto, run: Run, *, integers: bool = False) -> Fidelity:
    """Compares the builds' form of a quantised model with the model, and with the form that rounds. Raises the
    exceptions of `run`."""
    quantised, real, rounded = run(model), run(form), run(_rewritten(model, Form.ROUNDED))
    explained, largest, share = True, 0.0, 0.0
    for q, f, r in zip(quantised, real, rounded, strict=True):
        left, middle, right = (array.astype("float64") for array in (q, f, r))
        if left.shape != middle.shape or not left.size:
            continue  # the number of results, such as boxes, depends on their values
        off, rounding, spread = _rms(middle - left), _rms(middle - right), float(np.std(left))
        explained &= off <= max(ROUNDING_FACTOR * rounding, PLAUSIBLE_SHARE * spread, 1e-6 * _largest(left))
        error = _largest(middle - left)
        if _largest(left) and error / _largest(left) >= share:
            largest, share = error, error / _largest(left)
    said = f"up to {largest:.2g}, {share:.1%} of the largest value"
    if explained:
        return Fidelity(
            True,
            f"the model is quantised; builds {INTEGERS if integers else FLOATS}, so that their outputs"
            f" differ from those of ONNX Runtime on the quantised model: {said}",
        )
    return Fidelity(
        False,
        f"the float form of the quantised model differs from ONNX Runtime's result by more than rounding explains"
        f" ({said}), so that builds are compared with the quantised model",
    )


def _rewritten(model: onnx.ModelProto, form: Form) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    standard_operators.rewrite(copy, form)
    return copy


def _rms(array: Array) -> float:
    finite = array[np.isfinite(array)]
    return float(np.sqrt(np.mean(np.square(finite)))) if finite.size else 0.0


def _largest(array: Array) -> float:
    return float(np.max(np.abs(array[np.isfinite(array)]), initial=0.0))
