"""Compares each kernel of a compiled network with its unscheduled form, on the values of some inferences.

A network that rounds has few outputs, and their tolerance is wide: a kernel that is wrong in a few elements may stay
within it. Its own result shows the error, since it rounds at most a few times. See docs/decisions/001-verification.md.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from autosched_runtime.side_file import files_of
from autosched_tvm.compile.side_file import side_of
from autosched_tvm.device.loaded_module import LoadedModule
from autosched_tvm.device.place import HERE
from autosched_tvm.evaluation.onnx_reference import perturbed_inputs
from autosched_tvm.evaluation.output_comparison import Expected, Tolerances, same_elements
from autosched_tvm.evaluation.verification_messages import Check
from autosched_tvm.rounding import EPSILON, LEVELS, terms_of
from autosched_tvm.tensors import Array
from autosched_tvm.tvm_types import DeviceTensor

LIMIT_S = 60.0
"""Time after which no further call is compared, in seconds. Kernels without a schedule are slow."""
TIE_LEVELS = 2.0**-8
"""Distance from the middle of two levels, in levels, within which correct kernels may round to either. A sum of 400
numbers of one sign with a result of 256 levels is off by up to 2**-8 levels in float32."""


class KernelComparison:
    """Runs a network, and each of its kernels beside its unscheduled form."""

    def __init__(self, unscheduled: Path) -> None:
        """`unscheduled`: a build of the network with the same kernels, without schedules."""
        self._library = HERE.load(str(files_of(unscheduled)[0]))
        self._roundings = side_of(unscheduled).roundings

    def check(self, module: LoadedModule, samples: Sequence[Mapping[str, Array]]) -> tuple[Check, str]:
        """Compares the first call of each kernel on each sample of the network's inputs, until one differs.

        A wrong kernel may be right for the values of one sample: an index that is off by one may meet an equal value.
        Returns the result of the kernel that differs most; and a note on kernels that were not compared, or "".
        """
        until = time.monotonic() + LIMIT_S
        worst = Check(True, 0.0, 0.0)
        compared, late = set[str](), set[str]()
        for number, inputs in enumerate(samples):
            calls = _Calls(self._library, until, self._roundings)
            machine = module.machine()
            machine.set_instrument(calls.around)
            machine["main"](*module.tensors(inputs))
            worst = max((worst, *_of_sample(calls.checks.values(), number)), key=lambda check: check.severity)
            compared.update(calls.checks)
            late.update(calls.late)
            if not worst.equal or calls.late:
                break
        missing = len(late - compared)
        return worst, f"{missing} kernels were not compared within {LIMIT_S:.0f} s" if missing else ""


def _of_sample(checks: Iterable[Check], number: int) -> Iterator[Check]:
    """Yields the checks with the number of the sample in their differences."""
    for one in checks:
        at = one.difference and msgspec.structs.replace(one.difference, sample=number)
        yield msgspec.structs.replace(one, difference=at)


class _Calls:
    """The first call of each kernel in one inference."""

    def __init__(self, library: Any, until: float, roundings: Mapping[str, int]) -> None:
        """`until`: the time after which no further call is compared, as of time.monotonic. `roundings`: number of
        roundings of each kernel that takes their moves as its last argument."""
        self.checks: dict[str, Check] = {}
        self.late: set[str] = set()
        """Kernels for which no time was left."""
        self._library, self._until, self._roundings = library, until, roundings
        self._right: Any = None
        """The unscheduled form of the kernel that runs; None: it is not compared."""
        self._before: dict[int, Array] = {}
        """Tensors before the call, by number of the argument."""

    def around(self, _function: object, name: str, before: bool, _result: object, *arguments: Any) -> None:
        """Compares a call. The virtual machine calls this before and after each of its calls."""
        if before:
            self._right = self._form(str(name))
            if self._right is not None:
                tensors = {n: one for n, one in enumerate(arguments) if hasattr(one, "numpy")}
                self._before = {n: one.numpy().copy() for n, one in tensors.items()}
        elif self._right is not None:
            self.checks[str(name)] = self._compared(str(name), arguments)

    def _form(self, name: str) -> Any | None:
        if name in self.checks:
            return None
        right = self._library.get_function(name, True) if self._library.implements_function(name, True) else None
        if right is not None and time.monotonic() > self._until:
            self.late.add(name)
            return None
        return right

    @np.errstate(over="ignore", invalid="ignore")  # memory that is not written yet holds any numbers
    def _compared(self, name: str, arguments: tuple[Any, ...]) -> Check:
        got = {n: arguments[n].numpy() for n in self._before}
        still = np.zeros(self._roundings.get(name, 0), "float32")
        expected = self._results(arguments, self._before, still)
        if all(same_elements(one, expected[n]).all() for n, one in got.items()):
            return Check(True, 0.0, 0.0)
        other = expected  # a kernel without floats has one correct result
        if any(one.dtype.name in EPSILON for one in self._before.values()):
            floats = perturbed_inputs({str(n): one for n, one in self._before.items()}, np.random.default_rng(0))
            other = self._results(arguments, {int(n): one for n, one in floats.items()}, still)
        written = {
            n: ~(same_elements(one, expected[n]) & same_elements(one, got[n])) for n, one in self._before.items()
        }
        outputs = [n for n, where in written.items() if where.any()]
        shown = [tuple(np.where(written[n], results[n], 0) for n in outputs) for results in (expected, other, got)]
        levels = frozenset(n for n, one in enumerate(shown[0]) if one.dtype.name in LEVELS)
        names = [f"argument {n} of kernel {name}" for n in outputs]
        terms = terms_of(list(self._before.values()), shown[0])
        right = Expected(shown[0], (shown[1],), levels=levels)
        found = Tolerances([right], names, terms=terms).check([shown[2]])
        if found.equal or not still.size:
            return found
        amplified = self._amplified(arguments, {n: expected[n] for n in outputs}, still.size)
        right = msgspec.structs.replace(right, amplified=dict(enumerate(amplified)))
        return Tolerances([right], names, terms=terms).check([shown[2]])

    def _amplified(
        self, arguments: tuple[DeviceTensor, DeviceTensor], expected: Mapping[int, Array], roundings: int
    ) -> list[Array]:
        """Returns how far each element may be off where ties are rounded the other way: the sum of its changes while
        one rounding after the other moves, up and down."""
        total = [np.zeros(one.shape) for one in expected.values()]
        for number in range(roundings):
            for sign in (-1, 1):
                moves = np.zeros(roundings, "float32")
                moves[number] = sign * TIE_LEVELS
                results = self._results(arguments, self._before, moves)
                changes = [np.abs(results[n].astype("float64") - one) for n, one in expected.items()]
                total = [one + np.nan_to_num(change) for one, change in zip(total, changes, strict=True)]
        return total

    def _results(
        self,
        arguments: tuple[Any, ...],
        values: Mapping[int, Array],
        moves: Array,
    ) -> dict[int, Array]:
        """Returns the tensors after a call of the unscheduled kernel with other values, and moved roundings."""
        tensors = {n: HERE.tensor(value) for n, value in values.items()}
        last = [HERE.tensor(moves)] if moves.size else []
        self._right(*(tensors.get(n, one) for n, one in enumerate(arguments)), *last)
        return {n: tensor.numpy() for n, tensor in tensors.items()}
