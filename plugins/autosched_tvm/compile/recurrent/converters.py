"""Converters of ONNX's recurrent layers."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax

from autosched.errors import ModelRejected
from autosched_tvm.compile.integers.dot_instructions import DotInstruction
from autosched_tvm.compile.opset_converters import AnyVersion
from autosched_tvm.compile.recurrent.integer_weights import quantised_weights
from autosched_tvm.compile.recurrent.kernel import recurrence
from autosched_tvm.compile.recurrent.layer import Layer, layer_of, parts_of
from autosched_tvm.compile.recurrent.weights import (
    FloatWeights,
    Weights,
    packed_bias,
    packed_peepholes,
    packed_reset_bias,
)
from autosched_tvm.compile.task_extraction import SCHEDULED
from autosched_tvm.tensors import Array
from autosched_tvm.tvm_types import BlockBuilder, Expr, Tensor

_FLOPS = "estimated_flops"
"""TVM's attribute for the arithmetic of a kernel, which TVM cannot count in instructions."""


class Recurrent(AnyVersion):
    """Converter of one of the operators, which a subclass defines."""

    kind = ""
    cores = 1
    """Number of cores of the target."""

    @classmethod
    def weights(cls, inputs: Sequence[Any]) -> Weights:
        """Returns the weights among an operator's inputs. Raises ModelRejected."""
        return FloatWeights(_constant(cls.kind, inputs[1]), _constant(cls.kind, inputs[2]))

    @classmethod
    def _convert(
        cls, builder: BlockBuilder, inputs: Sequence[Any], attributes: dict[str, Any], _params: object
    ) -> Expr:
        given = [inputs[i] if i < len(inputs) else None for i in range(8)]
        by_batch = bool(attributes.get("layout", 0))
        x = relax.op.permute_dims(given[0], [1, 0, 2]) if by_batch else given[0]
        x = builder.normalize(x)
        steps, batch, features = (int(extent) for extent in x.ty.shape)
        weights = cls.weights(inputs)
        layer = layer_of(cls.kind, attributes, (steps, batch, weights.hidden), str(x.ty.dtype))
        lengths = given[4]
        peepholes = None if given[7] is None else _constant(cls.kind, given[7])
        layer = dataclasses.replace(
            layer, lengths=lengths is not None, peepholes=peepholes is not None, lanes=weights.lanes
        )
        constants = weights.recurrent(layer)
        size = sum(constants[f"r{phase}"].nbytes for phase in range(len(layer.phases)))
        layer = dataclasses.replace(layer, parts=parts_of(layer, size, cls.cores))
        total = weights.inputs(builder, layer, builder.emit(relax.op.reshape(x, (steps * batch, features))))
        tensors: dict[str, Any] = {}
        if given[3] is not None:
            bias = _constant(cls.kind, given[3])
            total = relax.op.add(total, relax.const(packed_bias(layer, bias)))
            if layer.kind == "GRU" and layer.reset_after:
                tensors["rb"] = relax.const(packed_reset_bias(layer, bias))
        shape = (steps, batch, layer.directions, layer.blocks, layer.gates, layer.block)
        tensors["xw"] = builder.emit(relax.op.reshape(total, shape))
        tensors |= {name: relax.const(value) for name, value in constants.items()}
        for name, value in (("h0", given[5]), ("c0", given[6])):
            if name == "h0" or layer.kind == "LSTM":
                tensors[name] = builder.emit(_state(layer, value, by_batch))
        if peepholes is not None:
            tensors["p"] = relax.const(packed_peepholes(layer, peepholes))
        if lengths is not None:
            tensors["lengths"] = builder.emit(relax.op.astype(lengths, "int32"))
        names = list(tensors)

        def steps_of(*arguments: Any) -> list[Tensor]:
            return recurrence(layer, dict(zip(names, arguments, strict=True)), weights.kernel)

        steps_of.__name__ = f"{layer.kind.lower()}_steps"
        made = builder.emit_te(steps_of, *tensors.values(), primfunc_attrs={SCHEDULED: True, _FLOPS: layer.flops})
        return relax.Tuple([builder.normalize(one) for one in _results(layer, made, by_batch)])


class Lstm(Recurrent):
    """Long short-term memory (Hochreiter and Schmidhuber 1997), with the peepholes of Gers and Schmidhuber (2000)."""

    kind = "LSTM"


class Gru(Recurrent):
    """Gated recurrent unit (Cho et al. 2014)."""

    kind = "GRU"


class Rnn(Recurrent):
    """Recurrent layer without gates (Elman 1990)."""

    kind = "RNN"


def converters(instruction: DotInstruction | None, number_of_cores: int) -> dict[str, type[Recurrent]]:
    """Returns converters by ONNX operator. `instruction`: the CPU's dot instruction for 8-bit integers."""

    class DynamicQuantizeLstm(Lstm):
        """ONNX Runtime's layer with 8-bit weights. Inputs and hidden states are quantised by their own range."""

        @classmethod
        def weights(cls, inputs: Sequence[Any]) -> Weights:
            """Returns the weights among an operator's inputs. Raises ModelRejected."""
            return quantised_weights([_constant(cls.kind, inputs[i]) for i in (1, 2, 8, 9, 10, 11)], instruction)

    found = {"LSTM": Lstm, "GRU": Gru, "RNN": Rnn, "DynamicQuantizeLSTM": DynamicQuantizeLstm}
    return {name: type(name, (one,), {"cores": number_of_cores}) for name, one in found.items()}


def _constant(kind: str, value: Expr) -> Array:
    if not isinstance(value, tvm.ir.GenericConst):
        raise ModelRejected(f"{kind} takes weights that the network computes; export the model with constant weights")
    return value.value.numpy()


def _state(layer: Layer, value: Expr | None, by_batch: bool) -> Expr:
    """Returns an initial state, padded to whole blocks."""
    padded = layer.blocks * layer.block
    if value is None:
        return relax.const(np.zeros((layer.directions, layer.batch, padded), layer.dtype))
    value = relax.op.permute_dims(value, [1, 0, 2]) if by_batch else value
    if padded != layer.hidden:
        value = relax.op.nn.pad(value, [0, 0, 0, 0, 0, padded - layer.hidden], "constant", 0.0)
    return value


def _results(layer: Layer, made: Expr, by_batch: bool) -> Iterator[Any]:
    """Yields the node's outputs: the kernel's results without padding, and with the batch dimension where the node has
    it."""
    for number in range(3 if layer.kind == "LSTM" else 2):
        value = relax.TupleGetItem(made, number)
        if layer.blocks * layer.block != layer.hidden:
            value = relax.op.strided_slice(value, [2 + (number == 0)], [0], [layer.hidden])
        if by_batch:
            value = relax.op.permute_dims(value, [2, 0, 1, 3] if number == 0 else [1, 0, 2])
        yield value
