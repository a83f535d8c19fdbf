"""LSTM, GRU and RNN layers: one matrix product for the inputs of all steps, then one kernel that runs the recurrence.

The product is an ordinary task for the tuner. The kernel is scheduled by rule: it keeps the gates of a block of hidden
units in vector registers, reads the recurrent weights in the order in which they lie in memory, and runs the two
directions of a bidirectional layer in parallel. A network of 200 steps therefore has two kernels for a layer.

Definitions: the ONNX operators LSTM, GRU and RNN, versions 7 to 22.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx
from tvm.relax.frontend.onnx import onnx_frontend
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from autosched.errors import ModelRejected
from autosched_tvm.compile.task_extraction import SCHEDULED

Array = Any
Expr = Any

LANES = 8
"""Hidden units are computed in blocks of a multiple of this number."""
ACCUMULATORS_MAX = 8
"""Vectors of `LANES` sums that a block keeps in registers; AVX2 has 16 registers, and the operands need some."""
ROWS_MAX = 2
"""Batch rows that share one pass over the recurrent weights."""

_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_DEFAULTS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
_ALPHAS = {"Affine": 1.0, "LeakyRelu": 0.01, "ThresholdedRelu": 1.0, "ScaledTanh": 1.0, "HardSigmoid": 0.2, "Elu": 1.0}
_BETAS = {"Affine": 0.0, "ScaledTanh": 1.0, "HardSigmoid": 0.5}
_PLAIN = frozenset({"Relu", "Tanh", "Sigmoid", "Softsign", "Softplus"})


@dataclass(frozen=True)
class Activation:
    """An activation function with its parameters."""

    name: str
    alpha: float
    beta: float

    def __call__(self, x: Expr) -> Expr:
        """The function of a TIR expression."""
        dtype = x.ty.dtype if hasattr(x, "ty") else x.dtype
        a, b, zero, one = (tirx.const(value, str(dtype)) for value in (self.alpha, self.beta, 0.0, 1.0))
        match self.name:
            case "Sigmoid":
                return tirx.sigmoid(x)
            case "Tanh":
                return tirx.tanh(x)
            case "Relu":
                return tirx.max(x, zero)
            case "Affine":
                return a * x + b
            case "LeakyRelu":
                return tirx.Select(x >= zero, x, a * x)
            case "ThresholdedRelu":
                return tirx.Select(x > a, x, zero)
            case "ScaledTanh":
                return a * tirx.tanh(b * x)
            case "HardSigmoid":
                return tirx.max(zero, tirx.min(one, a * x + b))
            case "Elu":
                return tirx.Select(x >= zero, x, a * (tirx.exp(tirx.min(x, zero)) - one))
            case "Softsign":
                return x / (one + tirx.abs(x))
            case _:  # Softplus, without overflow
                return tirx.max(x, zero) + tirx.log(one + tirx.exp(zero - tirx.abs(x)))


@dataclass(frozen=True)
class Layer:
    """Sizes and options of one layer; `activations` has one tuple for each direction."""

    kind: str
    steps: int
    batch: int
    hidden: int
    dtype: str
    backward: tuple[bool, ...]
    activations: tuple[tuple[Activation, ...], ...]
    clip: float = 0.0
    reset_after: bool = False
    """The GRU's reset gate is applied after the product with the recurrent weights (ONNX: linear_before_reset)."""
    coupled: bool = False
    """The LSTM's forget gate is one minus its input gate (ONNX: input_forget)."""
    peepholes: bool = False
    lengths: bool = False

    @property
    def gates(self) -> int:
        """Number of gates."""
        return _GATES[self.kind]

    @property
    def directions(self) -> int:
        """1, or 2 for a bidirectional layer."""
        return len(self.backward)

    @property
    def rows(self) -> int:
        """Batch rows that are computed together."""
        return min(self.batch, ROWS_MAX)

    @property
    def block(self) -> int:
        """Hidden units that are computed together."""
        units = -(-self.hidden // LANES)
        most = max(1, ACCUMULATORS_MAX // (self.gates * self.rows))
        return LANES * max(n for n in range(1, most + 1) if units % n == 0)

    @property
    def blocks(self) -> int:
        """Number of blocks of hidden units; the last one may be padded."""
        return -(-self.hidden // self.block)

    @property
    def phases(self) -> tuple[tuple[int, ...], ...]:
        """The gates whose recurrent products are computed together."""
        gates = tuple(range(self.gates))
        return (gates[:2], gates[2:]) if self.kind == "GRU" and not self.reset_after else (gates,)


def layer_of(kind: str, attributes: dict[str, Any], sizes: tuple[int, int, int], dtype: str) -> Layer:
    """The layer that an ONNX node describes; `sizes`: steps, batch rows, hidden units. Raises ModelRejected."""
    direction = _text(attributes.get("direction", "forward"))
    backward = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}.get(direction)
    if backward is None:
        raise ModelRejected(f"{kind} has the direction {direction!r}; ONNX knows forward, reverse and bidirectional")
    names = [_text(name) for name in attributes.get("activations", ())] or [*_DEFAULTS[kind]] * len(backward)
    each = len(_DEFAULTS[kind])
    if len(names) != each * len(backward):
        raise ModelRejected(f"{kind} has {len(names)} activations where it needs {each * len(backward)}")
    functions = _activations(names, attributes)
    return Layer(
        kind=kind, steps=sizes[0], batch=sizes[1], hidden=sizes[2], dtype=dtype, backward=backward,
        activations=tuple(tuple(functions[each * d : each * (d + 1)]) for d in range(len(backward))),
        clip=float(attributes.get("clip", 0.0)), reset_after=bool(attributes.get("linear_before_reset", 0)),
        coupled=bool(attributes.get("input_forget", 0)),
    )  # fmt: skip


def _activations(names: Sequence[str], attributes: dict[str, Any]) -> list[Activation]:
    """The functions; those that have parameters take them in order from the node's two lists."""
    alphas, betas = iter(attributes.get("activation_alpha", ())), iter(attributes.get("activation_beta", ()))
    known = {name.lower(): name for name in (*_PLAIN, *_ALPHAS)}
    functions = []
    for given in names:
        name = known.get(given.lower())
        if name is None:
            raise ModelRejected(f"the activation {given!r} of a recurrent layer is not one of {', '.join(known)}")
        alpha = float(next(alphas, _ALPHAS[name])) if name in _ALPHAS else 0.0
        beta = float(next(betas, _BETAS[name])) if name in _BETAS else 0.0
        functions.append(Activation(name, alpha, beta))
    return functions


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def packed_inputs(layer: Layer, weights: Array) -> Array:
    """Input weights, D x gates*hidden x inputs, as a matrix with the columns D, block, gate, unit of the block."""
    parts = [_blocked(layer, one, layer.gates).transpose(3, 1, 0, 2) for one in weights]
    return np.ascontiguousarray(np.stack(parts, axis=1).reshape(weights.shape[2], -1))


def packed_bias(layer: Layer, bias: Array) -> Array:
    """Biases, D x 2*gates*hidden, as one row that is added to the product of the inputs; see `packed_reset_bias`."""
    inputs, recurrent = np.split(bias.reshape(len(bias), 2, layer.gates, layer.hidden).copy(), 2, axis=1)
    if layer.reset_after and layer.kind == "GRU":
        recurrent[:, :, 2] = 0
    total = (inputs + recurrent).reshape(len(bias), -1, 1)
    return np.stack([_blocked(layer, one, layer.gates).transpose(3, 1, 0, 2) for one in total], axis=1).reshape(-1)


def packed_reset_bias(layer: Layer, bias: Array) -> Array:
    """The recurrent bias of the GRU's last gate, D x block x unit, which the reset gate is multiplied with."""
    last = bias.reshape(len(bias), 2, layer.gates, layer.hidden)[:, 1, 2]
    return _padded(layer, last).reshape(len(bias), layer.blocks, layer.block)


def packed_recurrent(layer: Layer, weights: Array, phase: Sequence[int]) -> Array:
    """Recurrent weights, D x gates*hidden x hidden, of some gates, as D x block x hidden x gate x unit of the block."""
    chosen = weights.reshape(len(weights), layer.gates, layer.hidden, layer.hidden)[:, list(phase)]
    parts = [_blocked(layer, one.reshape(-1, layer.hidden), len(phase)).transpose(1, 3, 0, 2) for one in chosen]
    return np.ascontiguousarray(np.stack(parts))


def packed_peepholes(layer: Layer, weights: Array) -> Array:
    """Peephole weights, D x 3*hidden, as D x gate x padded hidden units."""
    return _padded(layer, weights.reshape(len(weights), 3, layer.hidden))


def _blocked(layer: Layer, weights: Array, gates: int) -> Array:
    """Rows gates*hidden as gate x block x unit; the columns stay."""
    rows = weights.reshape(gates, layer.hidden, -1)
    rows = np.pad(rows, ((0, 0), (0, layer.blocks * layer.block - layer.hidden), (0, 0)))
    return rows.reshape(gates, layer.blocks, layer.block, -1)


def _padded(layer: Layer, values: Array) -> Array:
    """The last dimension, hidden units, padded to whole blocks."""
    missing = layer.blocks * layer.block - values.shape[-1]
    return np.ascontiguousarray(np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, missing)]))


class _Kernel:
    """Writes the kernel's statements. Buffers are in `b`, by name; see `recurrence` for their shapes."""

    def __init__(self, layer: Layer, buffers: dict[str, Any]) -> None:
        self.layer = layer
        self.b = {name: T.buffer_proxy(buffer) for name, buffer in buffers.items()}
        self.states = ("h", "c") if layer.kind == "LSTM" else ("h",)
        self.zero = tirx.const(0.0, layer.dtype)
        self.next: Any = None
        """New hidden states; the old ones are read until all blocks are computed."""
        self.reset: Any = None
        """Hidden states times the reset gate."""
        self.update: Any = None
        """The GRU's update gate."""

    def statements(self) -> Any:
        """The body."""
        layer = self.layer
        with IRBuilder() as ib:
            with T.serial(0, 1):  # one scope for all statements
                if layer.directions == 1:
                    self._direction(0)
                else:
                    with T.parallel(0, layer.directions) as d, T.If(d == 0):
                        with T.Then():
                            self._direction(0)
                        with T.Else():
                            self._direction(1)
            return ib.get()

    def _direction(self, d: int) -> None:
        layer = self.layer
        self.next = T.alloc_buffer((layer.batch, layer.blocks * layer.block), layer.dtype)
        if len(layer.phases) == 2:
            self.reset = T.alloc_buffer((layer.batch, layer.blocks * layer.block), layer.dtype)
            self.update = T.alloc_buffer((layer.batch, layer.blocks * layer.block), layer.dtype)
        for state in self.states:
            with self._units() as (row, j):
                first = self.b[f"{state}0"][d, row, j]
                if layer.lengths:  # the last state of an empty sequence is zero
                    first = tirx.Select(self.b["lengths"][row] > 0, first, self.zero)
                self.b[f"{state}n"][d, row, j] = first
        with T.serial(0, layer.steps) as step:
            time = layer.steps - 1 - step if layer.backward[d] else step
            for phase in range(len(layer.phases)):
                for first, rows in self._row_tiles():
                    if rows < layer.batch:
                        with T.serial(0, (layer.batch - first) // rows) as tile:
                            self._tile(d, time, phase, [first + tile * rows + r for r in range(rows)])
                    else:
                        self._tile(d, time, phase, list(range(rows)))
            with self._units() as (row, j):
                self.b["hn"][d, row, j] = self.next[row, j]

    @contextlib.contextmanager
    def _units(self) -> Iterator[tuple[Any, Any]]:
        """A loop over all rows and hidden units."""
        layer = self.layer
        with T.serial(0, layer.batch) as row, T.serial(0, layer.blocks) as block, T.vectorized(0, layer.block) as lane:
            yield row, block * layer.block + lane

    def _row_tiles(self) -> Iterator[tuple[int, int]]:
        """First row and rows of a tile: whole tiles, then single rows."""
        rows = self.layer.rows
        whole = self.layer.batch // rows * rows
        yield 0, rows
        if whole < self.layer.batch:
            yield whole, 1

    def _tile(self, d: int, time: Any, phase: int, rows: list[Any]) -> None:
        """The recurrent products of some rows, for all blocks, and what the gates make of them."""
        layer, gates = self.layer, self.layer.phases[phase]
        width = layer.block
        with T.serial(0, layer.blocks) as block:
            sums = T.alloc_buffer((len(rows), len(gates), width), layer.dtype, scope="local")
            for r, row in enumerate(rows):
                for g, gate in enumerate(gates):
                    with T.vectorized(0, width) as lane:
                        T.buffer_store(sums, self._start(d, time, row, block, gate, lane), [r, g, lane])
            source = self.reset if phase == 1 else None
            with T.serial(0, layer.hidden) as k:
                for g in range(len(gates)):
                    for r, row in enumerate(rows):
                        state = self.b["hn"][d, row, k] if source is None else source[row, k]
                        with T.vectorized(0, width) as lane:
                            weight = self.b[f"r{phase}"][d, block, k, g, lane]
                            T.buffer_store(sums, sums[r, g, lane] + state * weight, [r, g, lane])
            for r, row in enumerate(rows):
                self._cell(d, time, phase, row, block, lambda g, lane, r=r: sums[r, g, lane])  # type: ignore[misc]

    def _start(self, d: int, time: Any, row: Any, block: Any, gate: int, lane: Any) -> Any:
        """The value to which the recurrent products are added."""
        if self.layer.kind == "GRU" and self.layer.reset_after and gate == 2:
            return self.b["rb"][d, block, lane] if "rb" in self.b else self.zero
        return self.b["xw"][time, row, d, block, gate, lane]

    def _clipped(self, x: Any) -> Any:
        if not self.layer.clip:
            return x
        limit = tirx.const(self.layer.clip, self.layer.dtype)
        return tirx.max(tirx.min(x, limit), self.zero - limit)

    def _cell(self, d: int, time: Any, phase: int, row: Any, block: Any, sums: Callable[[int, Any], Any]) -> None:
        """New states of one row's block; `sums`: the sum of a gate at a lane."""
        cell = {"LSTM": self._lstm, "GRU": self._gru, "RNN": self._rnn}[self.layer.kind]
        cell(d, time, phase, row, block, sums)

    def _new_state(self, d: int, time: Any, row: Any, j: Any, value: Any) -> None:
        """Store a hidden state, unless the row's sequence has ended."""
        if self.layer.lengths:
            live = time < self.b["lengths"][row]
            self.b["y"][time, d, row, j] = tirx.Select(live, value, self.zero)
            value = tirx.Select(live, value, self.b["hn"][d, row, j])
        else:
            self.b["y"][time, d, row, j] = value
        T.buffer_store(self.next, value, [row, j])

    def _lstm(self, d: int, time: Any, _phase: int, row: Any, block: Any, sums: Callable[[int, Any], Any]) -> None:
        f, g, h = self.layer.activations[d]
        cell = T.alloc_buffer((self.layer.block,), self.layer.dtype, scope="local")
        with T.vectorized(0, self.layer.block) as lane:
            j = block * self.layer.block + lane
            old = self.b["cn"][d, row, j]
            i = f(self._clipped(self._peeped(sums(0, lane), d, 0, j, old)))
            kept = 1.0 - i if self.layer.coupled else f(self._clipped(self._peeped(sums(2, lane), d, 2, j, old)))
            T.buffer_store(cell, kept * old + i * g(self._clipped(sums(3, lane))), [lane])
        with T.vectorized(0, self.layer.block) as lane:
            j = block * self.layer.block + lane
            o = f(self._clipped(self._peeped(sums(1, lane), d, 1, j, cell[lane])))
            self._new_state(d, time, row, j, o * h(cell[lane]))  # as ONNX Runtime: clip is for gates
        with T.vectorized(0, self.layer.block) as lane:
            j = block * self.layer.block + lane
            new = cell[lane]
            if self.layer.lengths:
                new = tirx.Select(time < self.b["lengths"][row], new, self.b["cn"][d, row, j])
            self.b["cn"][d, row, j] = new

    def _peeped(self, total: Any, d: int, gate: int, j: Any, cell: Any) -> Any:
        return total + self.b["p"][d, gate, j] * cell if self.layer.peepholes else total

    def _gru(self, d: int, time: Any, phase: int, row: Any, block: Any, sums: Callable[[int, Any], Any]) -> None:
        f, g = self.layer.activations[d]
        with T.vectorized(0, self.layer.block) as lane:
            j = block * self.layer.block + lane
            old = self.b["hn"][d, row, j]
            if self.layer.reset_after:
                z, r = f(self._clipped(sums(0, lane))), f(self._clipped(sums(1, lane)))
                candidate = g(self._clipped(self.b["xw"][time, row, d, block, 2, lane] + r * sums(2, lane)))
            elif phase == 0:
                T.buffer_store(self.update, f(self._clipped(sums(0, lane))), [row, j])
                T.buffer_store(self.reset, f(self._clipped(sums(1, lane))) * old, [row, j])
                return
            else:
                z, candidate = self.update[row, j], g(self._clipped(sums(0, lane)))
            self._new_state(d, time, row, j, (1.0 - z) * candidate + z * old)

    def _rnn(self, d: int, time: Any, _phase: int, row: Any, block: Any, sums: Callable[[int, Any], Any]) -> None:
        (f,) = self.layer.activations[d]
        with T.vectorized(0, self.layer.block) as lane:
            self._new_state(d, time, row, block * self.layer.block + lane, f(self._clipped(sums(0, lane))))


def recurrence(layer: Layer, tensors: dict[str, Any]) -> list[Any]:
    """The kernel's results: hidden states of all steps, T x D x B x padded hidden units; the last hidden state and, for
    an LSTM, the last cell state, D x B x padded hidden units.

    `tensors`: xw (T x B x D x block x gate x unit), r0 and r1 (D x block x hidden x gate x unit), h0 and c0, rb, p,
    lengths.
    """
    padded = layer.blocks * layer.block
    state = (layer.directions, layer.batch, padded)
    results = {"y": (layer.steps, layer.directions, layer.batch, padded), "hn": state}
    if layer.kind == "LSTM":
        results["cn"] = state

    def statements(inputs: Any, outputs: Any) -> Any:
        names = (*tensors, *results)
        return _Kernel(layer, dict(zip(names, (*inputs, *outputs), strict=True))).statements()

    made = te.extern(
        list(results.values()), list(tensors.values()), statements, name=f"{layer.kind.lower()}_steps",
        dtype=[layer.dtype] * len(results),
    )  # fmt: skip
    return list(made)


class Recurrent(onnx_frontend.OnnxOpConverter):  # type: ignore[misc]  # TVM has no types
    """Converts one of the three operators; a subclass says which."""

    kind = ""

    @classmethod
    def get_converter(cls, _opset: int) -> Callable[..., Any]:
        """The same converter for all versions of the operator."""
        return cls._convert

    @classmethod
    def _convert(cls, builder: Any, inputs: Any, attributes: dict[str, Any], _params: Any) -> Any:
        given = [inputs[i] if i < len(inputs) else None for i in range(8)]
        by_batch = bool(attributes.get("layout", 0))
        x = relax.op.permute_dims(given[0], [1, 0, 2]) if by_batch else given[0]
        x = builder.normalize(x)
        steps, batch, features = (int(extent) for extent in x.ty.shape)
        weights, recurrent = (_constant(cls.kind, given[i]) for i in (1, 2))
        layer = layer_of(cls.kind, attributes, (steps, batch, recurrent.shape[-1]), str(x.ty.dtype))
        lengths = given[4]
        peepholes = None if given[7] is None else _constant(cls.kind, given[7])
        layer = dataclasses.replace(layer, lengths=lengths is not None, peepholes=peepholes is not None)

        total = relax.op.matmul(
            relax.op.reshape(x, (steps * batch, features)), relax.const(packed_inputs(layer, weights))
        )
        tensors: dict[str, Any] = {}
        if given[3] is not None:
            bias = _constant(cls.kind, given[3])
            total = relax.op.add(total, relax.const(packed_bias(layer, bias)))
            if layer.kind == "GRU" and layer.reset_after:
                tensors["rb"] = relax.const(packed_reset_bias(layer, bias))
        shape = (steps, batch, layer.directions, layer.blocks, layer.gates, layer.block)
        tensors["xw"] = builder.emit(relax.op.reshape(total, shape))
        for number, phase in enumerate(layer.phases):
            tensors[f"r{number}"] = relax.const(packed_recurrent(layer, recurrent, phase))
        for name, value in (("h0", given[5]), ("c0", given[6])):
            if name == "h0" or layer.kind == "LSTM":
                tensors[name] = builder.emit(_state(layer, value, by_batch))
        if peepholes is not None:
            tensors["p"] = relax.const(packed_peepholes(layer, peepholes))
        if lengths is not None:
            tensors["lengths"] = builder.emit(relax.op.astype(lengths, "int32"))
        names = list(tensors)

        def steps_of(*arguments: Any) -> Any:
            return recurrence(layer, dict(zip(names, arguments, strict=True)))

        steps_of.__name__ = f"{layer.kind.lower()}_steps"
        made = builder.emit_te(steps_of, *tensors.values(), primfunc_attrs={SCHEDULED: True})
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


CONVERTERS = {converter.kind: converter for converter in (Lstm, Gru, Rnn)}
"""By ONNX operator."""


def _constant(kind: str, value: Any) -> Array:
    if not isinstance(value, tvm.ir.GenericConst):
        raise ModelRejected(f"{kind} takes weights that the network computes; export the model with constant weights")
    return value.value.numpy()


def _state(layer: Layer, value: Any, by_batch: bool) -> Any:
    """An initial state, padded to whole blocks."""
    padded = layer.blocks * layer.block
    if value is None:
        return relax.const(np.zeros((layer.directions, layer.batch, padded), layer.dtype))
    value = relax.op.permute_dims(value, [1, 0, 2]) if by_batch else value
    if padded != layer.hidden:
        value = relax.op.nn.pad(value, [0, 0, 0, 0, 0, padded - layer.hidden], "constant", 0.0)
    return value


def _results(layer: Layer, made: Any, by_batch: bool) -> Iterator[Any]:
    """The node's outputs of the kernel's results: no padding, and the batch dimension where the node has it."""
    for number in range(3 if layer.kind == "LSTM" else 2):
        value = relax.TupleGetItem(made, number)
        if layer.blocks * layer.block != layer.hidden:
            value = relax.op.strided_slice(value, [2 + (number == 0)], [0], [layer.hidden])
        if by_batch:
            value = relax.op.permute_dims(value, [2, 0, 1, 3] if number == 0 else [1, 0, 2])
        yield value
