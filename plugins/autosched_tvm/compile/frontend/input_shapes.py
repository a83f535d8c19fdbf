"""Fixes the shape of each input of a network: from the user, from what the network requires, and a batch size of 1.

A dimension is determined where the input reaches a constant weight that allows one size only. The import asks for the
others, with an example made of the network's own names and constants.
"""

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from autosched.errors import ModelRejected, RequestError
from autosched_tvm.compile.frontend import folding, shape_inference

Shapes = Mapping[str, tuple[int, ...]]
Dims = list[int | None]

IMAGE_SIZE = 224
LINE_WIDTH = 320
"""Example width of an image of one text line, in pixels."""
LINE_HEIGHT_MAX = 80
"""Maximum height of an image of one text line, in pixels."""
TOKENS = 128
FRAMES = 100
"""Example number of steps of a sequence other than text."""
SAMPLES = 16_000
"""Example number of samples of a waveform: one second at 16 kHz."""

_ANONYMOUS = re.compile(r"^$|^\?$|^-1$|^none$|^unk(__\d+)?$|dynamicdimension|^[dsx]_?\d+$", re.IGNORECASE)
_BATCH = re.compile(r"batch|^n$|^b$|^bs$", re.IGNORECASE)
_NO_BATCH = re.compile(
    r"seq|len|time|frame|step|height|width|sample|token|word|char|atom|node|edge|point|row|num|count|src|tgt|residue",
    re.IGNORECASE,
)
_STATE = re.compile(r"(^|_)(h|c|hx|cx|hn|cn|state|hidden|cell)_?\d*$", re.IGNORECASE)
"""Names of inputs that hold states of a recurrent layer: layers x batch x hidden units."""
_OTHER_SIZES = (512, 576, 1024, 256, 64, 32, 16, 8)
"""Further example sizes, tried where the first does not fit the network."""
_INTEGERS = (TensorProto.INT32, TensorProto.INT64)
_SAME_SHAPE = frozenset({
    "Identity", "Cast", "Relu", "Sub", "Add", "Mul", "Div", "Clip", "Sqrt", "Log", "Exp", "Abs", "Neg", "Tanh",
    "Sigmoid", "Dropout", "Pow",
})  # fmt: skip
"""Operators that keep the meaning of each dimension of their first input."""


@dataclass
class _Input:
    """One input: its dimensions, None where unknown, and their names in the file."""

    name: str
    element: int
    dims: Dims | None
    names: list[str] = field(default_factory=list)
    empty: bool = False
    """Whether the file says 0 for a dimension. Some exporters write it for an unknown one."""


def fix(model: onnx.ModelProto, given: Shapes) -> list[str]:
    """Fixes the shapes of all inputs in place; returns the decisions made, in words.

    Raises RequestError for a shape that does not fit, and ModelRejected with an example for a shape that must be given.
    """
    inputs = {value.name: _read(value) for value in _inputs_of(model)}
    for name, wanted in given.items():
        if name not in inputs:
            raise RequestError(f"the model has no input {name!r}; its inputs are: {', '.join(map(repr, inputs))}")
        _check(name, inputs[name].dims, wanted)
        inputs[name].dims = list(wanted)
    said = _shared(inputs) + _forced(model, inputs)
    before = {name: list(one.dims) for name, one in inputs.items() if one.dims is not None}
    batches = _batches(inputs) + _shared(inputs)
    if missing := [one for one in inputs.values() if one.dims is None or None in one.dims]:
        raise ModelRejected(_question(model, missing, inputs))
    _write(model, inputs)
    if given or said or batches:  # the shapes of inner values in the file may be wrong now
        del model.graph.value_info[:]
    if batches and shape_inference.contradicts(model):
        batches = _batch_inside(model, inputs, before) or batches
    return said + batches


def _write(model: onnx.ModelProto, inputs: Mapping[str, _Input]) -> None:
    for value in _inputs_of(model):
        made = helper.make_tensor_type_proto(1, inputs[value.name].dims or [])
        value.type.tensor_type.shape.CopyFrom(made.tensor_type.shape)


def _batch_inside(model: onnx.ModelProto, inputs: Mapping[str, _Input], before: Mapping[str, Dims]) -> list[str]:
    """Sets the batch dimensions to the size that the network has inside, if there is one."""
    until = time.monotonic() + BATCHES_S
    for size in _sizes_inside(model):
        if time.monotonic() > until:
            break
        for name, dims in before.items():
            inputs[name].dims = [size if d is None else d for d in dims]
        _write(model, inputs)
        if not shape_inference.contradicts(model):
            names = ", ".join(repr(name) for name, dims in before.items() if None in dims)
            return [f"batch dimension of {names} set to {size}: the network has that size inside"]
    for name, dims in before.items():
        inputs[name].dims = [1 if d is None else d for d in dims]
    _write(model, inputs)
    return []


def _sizes_inside(model: onnx.ModelProto) -> list[int]:
    """Numbers that the network's constants hold or have as sizes: a batch that it was exported with is among them, or
    their quotients."""
    found = set()
    constants = [a.t for node in model.graph.node if node.op_type == "Constant" for a in node.attribute]
    for tensor in (*model.graph.initializer, *constants):
        found.update(tensor.dims)
        if tensor.data_type == TensorProto.INT64 and np.prod(tensor.dims) <= RANK_MAX:
            found.update(int(number) for number in numpy_helper.to_array(tensor).reshape(-1))
    found |= {one // other for one in found for other in found if other > 0 and one % other == 0}
    return sorted(size for size in found if 1 < size <= BATCH_MAX)


RANK_MAX = 8
"""Maximum number of elements of a constant that may be a shape."""
BATCH_MAX = 256
"""Maximum batch size that is tried."""
BATCHES_S = 2.0
"""Seconds after which no further batch sizes are tried."""


def _inputs_of(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    constants = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in constants]


def _read(value: onnx.ValueInfoProto) -> _Input:
    if not value.type.HasField("tensor_type"):
        raise ModelRejected(f"input {value.name!r} is not a tensor; export the model with tensor inputs only")
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return _Input(value.name, tensor.elem_type, None)
    dims = tensor.shape.dim
    sizes = [int(d.dim_value) if d.HasField("dim_value") and d.dim_value > 0 else None for d in dims]
    empty = any(d.HasField("dim_value") and d.dim_value == 0 for d in dims)
    return _Input(value.name, tensor.elem_type, sizes, [d.dim_param for d in dims], empty)


def _check(name: str, dims: Dims | None, wanted: tuple[int, ...]) -> None:
    if any(size <= 0 for size in wanted):
        raise RequestError(
            f"--shape {name}={_comma(wanted)}: each dimension must be at least 1; empty tensors are not supported"
        )
    if dims is None:
        return
    if len(dims) != len(wanted) or any(d is not None and d != w for d, w in zip(dims, wanted, strict=True)):
        raise RequestError(f"--shape {name}={_comma(wanted)} does not fit input {name!r}, which is {_unknown(dims)}")


def _shared(inputs: Mapping[str, _Input]) -> list[str]:
    """Gives a named dimension the size that the same name has in another input."""
    known: dict[str, tuple[int, str]] = {}
    for one in inputs.values():
        for size, name in zip(one.dims or [], one.names, strict=False):
            if size is not None and not _ANONYMOUS.search(name):
                known.setdefault(name, (size, one.name))
    said = []
    for one in inputs.values():
        for place, name in enumerate(one.names):
            if one.dims is not None and one.dims[place] is None and name in known:
                one.dims[place] = known[name][0]
                said.append(f"{_of(one, place)} set to {known[name][0]}, as in {known[name][1]!r}")
    return said


def _batches(inputs: Mapping[str, _Input]) -> list[str]:
    """Sets unknown batch dimensions to 1."""
    said = []
    for one in inputs.values():
        for place in range(len(one.dims or [])):
            if one.dims is not None and one.dims[place] is None and _is_batch(one, place):
                one.dims[place] = 1
                other = [8 if i == place else d for i, d in enumerate(one.dims)]
                example = f" (for another: --shape {one.name}={_comma(other)})" if None not in other else ""
                said.append(f"batch dimension of input {one.name!r} set to 1{example}")
    return said


def _is_batch(one: _Input, place: int) -> bool:
    name = one.names[place]
    if _BATCH.search(name) or (place == 1 and len(one.names) == 3 and _STATE.search(one.name)):
        return True
    return place == 0 and len(one.names) > 1 and not _NO_BATCH.search(name)


def _of(one: _Input, place: int) -> str:
    name = one.names[place] if place < len(one.names) else ""
    return f"dimension {place} of input {one.name!r}" if _ANONYMOUS.search(name) else f"{name!r} of input {one.name!r}"


# Dimensions that a constant weight forces.


def _forced(model: onnx.ModelProto, inputs: Mapping[str, _Input]) -> list[str]:
    """Sets the dimensions that allow one size only."""
    weights = {tensor.name: list(tensor.dims) for tensor in model.graph.initializer}
    said = []
    for one in inputs.values():
        if one.dims is None or None not in one.dims:
            continue
        for place, (size, why) in _forced_sizes(model, one, weights).items():
            if one.dims[place] is None:
                one.dims[place] = size
                said.append(f"{_of(one, place)} set to {size}, since {why} takes no other")
    return said


def _forced_sizes(model: onnx.ModelProto, one: _Input, weights: Mapping[str, list[int]]) -> dict[int, tuple[int, str]]:
    """Returns size and reason by dimension, found by following the input through operators that keep its dimensions."""
    rank = len(one.dims or [])
    places: dict[str, list[int]] = {one.name: list(range(rank))}
    """Dimension of the input, by dimension of a value."""
    found: dict[int, tuple[int, str]] = {}
    for node in model.graph.node:
        if not node.input or node.input[0] not in places:
            continue
        axes, attributes = places[node.input[0]], {a.name: helper.get_attribute_value(a) for a in node.attribute}
        taken = _taken(node, attributes, weights, rank)
        if taken is not None:
            axis, size = taken
            found.setdefault(axes[axis], (size, f"{node.op_type} {node.name or node.output[0]!r}"))
        elif node.op_type == "Transpose":
            places[node.output[0]] = [axes[i] for i in attributes.get("perm", range(rank)[::-1])]
        elif node.op_type in _SAME_SHAPE and all(
            len(weights.get(name, ())) <= 1 and (name in weights or name in places) for name in node.input[1:]
        ):
            places[node.output[0]] = axes
    return found


def _taken(
    node: onnx.NodeProto, attributes: Mapping[str, Any], weights: Mapping[str, list[int]], rank: int
) -> tuple[int, int] | None:
    """Returns the axis of the first input that a weight determines, and its size."""
    weight = weights.get(node.input[1]) if len(node.input) > 1 else None
    if weight is None:
        return None
    match node.op_type:
        case "Conv" if len(weight) == rank:
            return 1, weight[1] * int(attributes.get("group", 1))
        case "ConvTranspose" if len(weight) == rank:
            return 1, weight[0]
        case "MatMul" if len(weight) == 2 and rank >= 2:
            return rank - 1, weight[0]
        case "Gemm" if rank == 2 and not attributes.get("transA", 0):
            return 1, weight[1 if attributes.get("transB", 0) else 0]
        case "LSTM" | "GRU" | "RNN" if rank == 3:
            return 2, weight[2]
        case "BatchNormalization":
            return 1, weight[0]
    return None


# What is asked for.


def _question(model: onnx.ModelProto, missing: list[_Input], inputs: Mapping[str, _Input]) -> str:
    told = [
        f"{one.name!r} is {'of unknown rank' if one.dims is None else _unknown(one.dims, one.names)}" for one in missing
    ]
    example = [f"--shape {name}={_comma(dims)}" for name, dims in _example(model, missing, inputs).items()]
    noun = "shape is" if len(inputs) == 1 else "shapes are"
    empty = [repr(one.name) for one in missing if one.empty]
    zero = f" (in the file, a size of {', '.join(empty)} is 0; an empty input must be left out)" if empty else ""
    return f"the model's input {noun} not fixed: {'; '.join(told)}{zero}. Fix them, for example: {' '.join(example)}"


def _example(model: onnx.ModelProto, missing: list[_Input], inputs: Mapping[str, _Input]) -> dict[str, list[int]]:
    """Returns example shapes for the inputs that lack one, checked against the network by type inference."""
    positions = _positions(model)
    first: dict[str, list[int]] = {}
    for size in (None, *_OTHER_SIZES):
        sizes: dict[str, int] = {}
        made = {one.name: _guess(one, positions, sizes) for one in missing}
        unknown = {(one.name, i) for one in missing for i, d in enumerate(one.dims or []) if d is None}
        names = {inputs[name].names[place] for name, place in unknown if inputs[name].names}
        if size is not None:
            if len(unknown) > 1 and (len(names) > 1 or _ANONYMOUS.search(next(iter(names), ""))):
                break  # several independent sizes give too many combinations
            for name, place in unknown:
                made[name][place] = size
        first = first or made
        if _fits(model, {name: made.get(name) or list(one.dims or []) for name, one in inputs.items()}):
            return made
    return first


def _fits(model: onnx.ModelProto, shapes: Mapping[str, list[Any]]) -> bool:
    """Returns whether type inference accepts the network with these input shapes."""
    tried = onnx.ModelProto()
    tried.CopyFrom(model)
    for value in _inputs_of(tried):
        made = helper.make_tensor_type_proto(1, shapes[value.name])
        value.type.tensor_type.shape.CopyFrom(made.tensor_type.shape)
    del tried.graph.value_info[:]
    try:
        folded, _ = folding.fold(tried)
    except onnx.shape_inference.InferenceError:
        return False
    except Exception:  # a network that cannot be folded does not contradict any shape
        return True
    return all(node.op_type != "If" for node in folded.graph.node)  # neither of its branches fits


def _guess(one: _Input, positions: int | None, sizes: dict[str, int]) -> list[int]:
    """Returns an example shape; `sizes` keeps one size for each name of a dimension."""
    if one.dims is None:
        return [1, 3, IMAGE_SIZE, IMAGE_SIZE]
    made: list[int] = []
    for place, size in enumerate(one.dims):
        name = one.names[place] if place < len(one.names) else ""
        if size is None:
            size = sizes.get(name) if name and not _ANONYMOUS.search(name) else None
            size = size if size is not None else _guessed(one, place, positions)
            sizes.setdefault(name, size)
        made.append(size)
    return made


def _guessed(one: _Input, place: int, positions: int | None) -> int:
    dims, name = one.dims or [], one.names[place] if place < len(one.names) else ""
    rank = len(dims)
    if rank == 1 and re.search("len", name + one.name, re.IGNORECASE):
        return 1
    if one.element in _INTEGERS or re.search(r"token|word|char|src|tgt", name, re.IGNORECASE):
        return min(TOKENS, positions or TOKENS)
    if rank == 4:
        spatial = [i for i in range(1, rank) if dims[i] is None or (dims[i] or 0) > 4]
        if place not in spatial:
            return 3
        others = [dims[i] for i in spatial if i != place and dims[i] is not None]
        if place == 1 and dims[2] is None and dims[3] is None:
            return 3
        return LINE_WIDTH if others and min(d or 0 for d in others) <= LINE_HEIGHT_MAX else IMAGE_SIZE
    return SAMPLES if rank == 2 and place == 1 else FRAMES


def _positions(model: onnx.ModelProto) -> int | None:
    """Returns the length of the network's table of position embeddings."""
    for tensor in model.graph.initializer:
        if re.search(r"position|pos_emb|wpe", tensor.name, re.IGNORECASE) and len(tensor.dims) >= 2:
            return int(np.max(tensor.dims[-2]))
    return None


def _unknown(dims: Dims, names: Iterable[str] = ()) -> str:
    """Returns the shape with ? for unknown sizes, or their names where all have one."""
    text = ",".join("?" if d is None else str(d) for d in dims)
    named = [name for d, name in zip(dims, names, strict=False) if d is None and not _ANONYMOUS.search(name)]
    return f"{text} ({', '.join(dict.fromkeys(named))} unknown)" if named else text


def _comma(dims: Iterable[int | None]) -> str:
    return ",".join(str(d) for d in dims)
