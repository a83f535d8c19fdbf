"""Kernel of a recurrent layer, which runs all its steps."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from autosched_tvm.compile.recurrent.layer import Layer
from autosched_tvm.tvm_types import Expr, Stmt, Tensor


class Kernel:
    """Writes the kernel's statements. Buffers are in `b`, by name; see `recurrence` for their shapes."""

    def __init__(self, layer: Layer, buffers: dict[str, Expr]) -> None:
        self.layer = layer
        self.b = {name: T.buffer_proxy(buffer) for name, buffer in buffers.items()}
        self.states = ("h", "c") if layer.kind == "LSTM" else ("h",)
        self.zero = tirx.const(0.0, layer.dtype)
        self.next: Any = None
        """New hidden states; the old ones are read until all blocks are computed."""
        self.reset: Any = None
        """Hidden states times the reset gate."""
        self.update: Any = None
        """Update gate of the GRU."""

    def statements(self) -> Stmt:
        """Returns the body."""
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

    def allocate(self) -> None:
        """Allocates the buffers of a direction."""
        layer = self.layer
        self.next = T.alloc_buffer((layer.batch, layer.blocks * layer.block), layer.dtype)
        if len(layer.phases) == 2:
            self.reset = T.alloc_buffer((layer.batch, layer.blocks * layer.block), layer.dtype)
            self.update = T.alloc_buffer((layer.batch, layer.blocks * layer.block), layer.dtype)

    def _direction(self, d: int) -> None:
        layer = self.layer
        self.allocate()
        for state in self.states:
            with self.units() as (row, j):
                first = self.b[f"{state}0"][d, row, j]
                if layer.lengths:  # the last state of an empty sequence is zero
                    first = tirx.Select(self.b["lengths"][row] > 0, first, self.zero)
                self.b[f"{state}n"][d, row, j] = first
        with T.serial(0, layer.steps) as step:
            time = layer.steps - 1 - step if layer.backward[d] else step
            self.begin_step(d, time)
            for phase in range(len(layer.phases)):
                if layer.parts == 1:
                    self._part(d, time, phase, 0, layer.blocks)
                else:
                    most = -(-layer.blocks // layer.parts)
                    with T.parallel(0, -(-layer.blocks // most)) as part:
                        first = part * most
                        self._part(d, time, phase, first, tirx.min(most, layer.blocks - first))
            with self.units() as (row, j):
                self.b["hn"][d, row, j] = self.next[row, j]

    @contextlib.contextmanager
    def units(self) -> Iterator[tuple[Any, Any]]:
        """Opens a loop over all rows and hidden units."""
        layer = self.layer
        with T.serial(0, layer.batch) as row, T.serial(0, layer.blocks) as block, T.vectorized(0, layer.block) as lane:
            yield row, block * layer.block + lane

    def _part(self, d: int, time: Expr, phase: int, first: int, blocks: int) -> None:
        """Computes the recurrent products and the gates of all rows for some blocks, from `first`."""
        layer = self.layer
        whole = layer.batch // layer.rows
        passes = whole + layer.batch % layer.rows
        with T.serial(0, whole) as tile:
            rows = [tile * layer.rows + r for r in range(layer.rows)]
            self._tile(d, time, phase, rows, (first, blocks, (time * passes + tile) % 2 == 0))
        for row in range(whole * layer.rows, layer.batch):
            self._tile(d, time, phase, [row], (first, blocks, (time * passes + passes - 1) % 2 == 0))

    def _tile(self, d: int, time: Expr, phase: int, rows: list[int | Expr], blocks: tuple[Any, Any, Any]) -> None:
        """Computes the recurrent products and the gates of some rows. `blocks`: the first one, their number, and
        whether they are passed over in ascending order.

        Every second pass over the blocks runs backwards, so that it begins with the weights read last, which are in the
        cache. If the weights are slightly larger than the cache, passes in one direction find none of them there.
        """
        first, number, ascending = blocks
        with T.serial(0, number) as turn:
            block = first + tirx.Select(ascending, turn, number - 1 - turn)
            sums = self.sums(d, time, phase, rows, block)
            for r, row in enumerate(rows):
                self._cell(d, time, phase, row, block, lambda g, lane, r=r: sums[r, g, lane])  # type: ignore[misc]

    def begin_step(self, d: int, time: Expr) -> None:
        """Emits the statements of a step before its products."""

    def sums(self, d: int, time: Expr, phase: int, rows: list[int | Expr], block: Expr) -> Expr:
        """Returns the recurrent products of some rows for a block, added to their start: row x gate x unit."""
        layer, gates = self.layer, self.layer.phases[phase]
        width = layer.block
        sums = T.alloc_buffer((len(rows), len(gates), width), layer.dtype, scope="local")
        for r, row in enumerate(rows):
            for g, gate in enumerate(gates):
                with T.vectorized(0, width) as lane:
                    T.buffer_store(sums, self.start(d, time, row, block, gate, lane), [r, g, lane])
        source = self.reset if phase == 1 else None
        with T.serial(0, layer.hidden) as k:
            for g in range(len(gates)):
                for r, row in enumerate(rows):
                    state = self.b["hn"][d, row, k] if source is None else source[row, k]
                    with T.vectorized(0, width) as lane:
                        weight = self.b[f"r{phase}"][d, block, k, g, lane]
                        T.buffer_store(sums, sums[r, g, lane] + state * weight, [r, g, lane])
        return sums

    def start(self, d: int, time: Expr, row: Any, block: Expr, gate: int, lane: Expr) -> Expr:
        """Returns the value to which the recurrent products are added."""
        if self.layer.kind == "GRU" and self.layer.reset_after and gate == 2:
            return self.b["rb"][d, block, lane] if "rb" in self.b else self.zero
        return self.b["xw"][time, row, d, block, gate, lane]

    def _clipped(self, x: Expr) -> Expr:
        if not self.layer.clip:
            return x
        limit = tirx.const(self.layer.clip, self.layer.dtype)
        return tirx.max(tirx.min(x, limit), self.zero - limit)

    def _cell(self, d: int, time: Any, phase: int, row: Any, block: Any, sums: Callable[[int, Any], Any]) -> None:
        """Computes the new states of one row's block. `sums`: the sum of a gate at a lane."""
        cell = {"LSTM": self._lstm, "GRU": self._gru, "RNN": self._rnn}[self.layer.kind]
        cell(d, time, phase, row, block, sums)

    def _new_state(self, d: int, time: Expr, row: int | Expr, j: Expr, value: Expr) -> None:
        """Stores a hidden state, unless the row's sequence has ended."""
        if self.layer.lengths:
            live = time < self.b["lengths"][row]
            self.b["y"][time, d, row, j] = tirx.Select(live, value, self.zero)
            value = tirx.Select(live, value, self.b["hn"][d, row, j])
        else:
            self.b["y"][time, d, row, j] = value
        T.buffer_store(self.next, value, [row, j])

    def _lstm(
        self, d: int, time: Expr, _phase: int, row: int | Expr, block: Expr, sums: Callable[[int, Any], Any]
    ) -> None:
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
            self._new_state(d, time, row, j, o * h(cell[lane]))  # as in ONNX Runtime: clip applies to gates
        with T.vectorized(0, self.layer.block) as lane:
            j = block * self.layer.block + lane
            new = cell[lane]
            if self.layer.lengths:
                new = tirx.Select(time < self.b["lengths"][row], new, self.b["cn"][d, row, j])
            self.b["cn"][d, row, j] = new

    def _peeped(self, total: Expr, d: int, gate: int, j: Expr, cell: Expr) -> Expr:
        return total + self.b["p"][d, gate, j] * cell if self.layer.peepholes else total

    def _gru(
        self, d: int, time: Expr, phase: int, row: int | Expr, block: Expr, sums: Callable[[int, Any], Any]
    ) -> None:
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

    def _rnn(self, d: int, time: Expr, _phase: int, row: Expr, block: Expr, sums: Callable[[int, Any], Any]) -> None:
        (f,) = self.layer.activations[d]
        with T.vectorized(0, self.layer.block) as lane:
            self._new_state(d, time, row, block * self.layer.block + lane, f(self._clipped(sums(0, lane))))


def recurrence(layer: Layer, tensors: dict[str, Tensor], kernel: Callable[..., Kernel] = Kernel) -> list[Tensor]:
    """Returns the kernel's results: hidden states of all steps, T x D x B x padded hidden units; the last hidden state
    and, for an LSTM, the last cell state, D x B x padded hidden units.

    `tensors`: xw (T x B x D x block x gate x unit), r0 and r1 (D x block x hidden x gate x unit), h0 and c0, rb, p,
    lengths.
    """
    padded = layer.blocks * layer.block
    state = (layer.directions, layer.batch, padded)
    results = {"y": (layer.steps, layer.directions, layer.batch, padded), "hn": state}
    if layer.kind == "LSTM":
        results["cn"] = state

    def statements(inputs: list[Expr], outputs: list[Expr]) -> Stmt:
        names = (*tensors, *results)
        return kernel(layer, dict(zip(names, (*inputs, *outputs), strict=True))).statements()

    made = te.extern(
        list(results.values()), list(tensors.values()), statements, name=f"{layer.kind.lower()}_steps",
        dtype=[layer.dtype] * len(results),
    )  # fmt: skip
    return list(made)
