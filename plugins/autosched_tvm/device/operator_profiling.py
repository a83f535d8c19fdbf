"""Measures the time of each operator within a compiled network. Runs in a child on the device.

The virtual machine calls an instrument before and after each of its calls. The time between the two is that of the
kernel and of a part of the instrument. The instrument's share, and the virtual machine's own time for a call, are
measured with kernels that do nothing and have as many arguments. Within a network an instrument is slower, since the
kernels displace it from the caches: by the ratio of instrumented inferences to the time predicted from those empty
kernels.
"""

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import tvm
from msgspec import structs
from tvm import relax, tirx

from autosched.backend import OperatorTime, OperatorTimes
from autosched_tvm.compile import task_extraction
from autosched_tvm.device.loaded_module import LoadedModule
from autosched_tvm.tensors import Array

QUIET_SHARE = 4
"""Number of runs of which the fastest counts: a run that another program interrupts is slower as a whole, while most of
its operators are not."""
SLOWER_MAX = 6.0
"""Maximum ratio of the instrument's time in a network to its time alone; beyond, something else has slowed the runs."""
RUNS_MAX = 200
"""Maximum of instrumented inferences. There is at least one, however small the budget is."""
FEW_ARGUMENTS, MANY_ARGUMENTS = 2, 12
"""Numbers of arguments of the two empty kernels that are measured."""
IDLE_CALLS, IDLE_RUNS = 64, 30
"""Calls of each empty kernel in one run, and number of runs."""
VIRTUAL_MACHINE = "virtual machine"
BUILTIN = "vm."
VIEW = "vm.builtin.reshape"


@dataclass(frozen=True)
class Overhead:
    """Cost of a call besides its kernel, in seconds."""

    told_s: float
    """Time that the instrument sees for an empty kernel."""
    call_s: float
    """The call itself, without an instrument."""
    added_s: float
    """Time that the instrument adds to the call."""


@dataclass
class Call:
    """One call of the virtual machine, the same in every inference."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    arguments: int
    samples_s: list[float] = field(default_factory=list)


def measured(module: LoadedModule, inputs: Mapping[str, Array] | Sequence[Array], budget_s: float) -> OperatorTimes:
    """The time of each operator in one inference, the longest first."""
    machine, tensors, bound = module.machine(), module.tensors(inputs), module.bind(inputs)
    module.call(bound)  # sets the number of threads of this thread's kernels
    calls: list[Call] = []
    machine.set_instrument(_recorder(calls))
    machine["main"](*tensors)
    wholes_s: list[float] = []
    instrumented_s: list[float] = []
    deadline = time.perf_counter() + budget_s
    clock: list[float] = []
    machine.set_instrument(_timer(clock))
    while not wholes_s or (len(wholes_s) < RUNS_MAX and time.perf_counter() < deadline):
        clock.clear()
        started = time.perf_counter()
        machine["main"](*tensors)
        instrumented_s.append(time.perf_counter() - started)
        for call, sample_s in zip(calls, clock, strict=True):
            call.samples_s.append(sample_s)
        module.sample(bound, 1)  # with other content of the caches
        wholes_s.append(module.sample(bound, 1))
    whole_s = statistics.median(sorted(wholes_s)[: _quiet(len(wholes_s))])
    fastest = sorted(range(len(instrumented_s)), key=lambda run: instrumented_s[run])[: _quiet(len(instrumented_s))]
    for call in calls:
        call.samples_s = [call.samples_s[run] for run in fastest]
    overheads = {count: _overhead(count) for count in {call.arguments for call in calls}}
    added_s = sum(overheads[call.arguments].added_s for call in calls)
    slower = (statistics.median(instrumented_s[run] for run in fastest) - whole_s) / max(added_s, 1e-9)
    slower = min(max(slower, 1.0), SLOWER_MAX)
    return OperatorTimes(whole_s, _rows(calls, module.info.kernels, overheads, slower, whole_s))


def _quiet(runs: int) -> int:
    """Number of runs that count."""
    return -(-runs // QUIET_SHARE)


def _rows(
    calls: Sequence[Call],
    schedules: Mapping[str, str],
    overheads: Mapping[int, Overhead],
    slower: float,
    whole_s: float,
) -> tuple[OperatorTime, ...]:
    """The rows of the table. `slower`: ratio of the instrument's time in the network; `whole_s`: time of an inference.

    The virtual machine's rows together take no longer than what the kernels leave of it: in a network of a few
    microseconds, the processor overlaps its calls with kernels.
    """
    rows: dict[tuple[str, str], list[float]] = {}
    for call in calls:
        overhead = overheads[call.arguments]
        own_s = max(0.0, statistics.median(call.samples_s) - slower * overhead.told_s)
        if call.name.startswith(BUILTIN):
            what = "views" if call.name == VIEW else "memory"
            rows.setdefault((what, VIRTUAL_MACHINE), []).append(own_s + overhead.call_s)
            continue
        rows.setdefault((_described(call), _schedule(call.name, schedules)), []).append(own_s)
        rows.setdefault(("calls of kernels", VIRTUAL_MACHINE), []).append(overhead.call_s)
    found = [OperatorTime(name, schedule, len(times), sum(times)) for (name, schedule), times in rows.items()]
    kernels = [row for row in found if row.schedule != VIRTUAL_MACHINE]
    others = [row for row in found if row.schedule == VIRTUAL_MACHINE]
    left_s, others_s = max(0.0, whole_s - _sum_s(kernels)), _sum_s(others)
    if others_s > left_s:
        others = [structs.replace(row, time_s=row.time_s * left_s / others_s) for row in others]
    return tuple(sorted([*kernels, *others], key=lambda row: -row.time_s))


def _sum_s(rows: Sequence[OperatorTime]) -> float:
    return sum(row.time_s for row in rows)


def _schedule(name: str, schedules: Mapping[str, str]) -> str:
    """Origin of a kernel's schedule; a call of no kernel of the network is a library's."""
    return schedules.get(name, "library") if schedules else "unknown"


def _described(call: Call) -> str:
    """The description of an operator, as of tasks."""
    return task_extraction.describe(call.name, list(call.shapes)) if call.shapes else call.name


def _recorder(calls: list[Call]) -> Any:
    """An instrument that records the calls."""

    def around(_function: object, name: str, before: bool, _result: object, *arguments: Any) -> None:
        if before:
            shapes = tuple(tuple(int(d) for d in one.shape) for one in arguments if hasattr(one, "shape"))
            calls.append(Call(str(name), shapes, len(arguments)))

    return around


def _timer(clock: list[float]) -> Any:
    """An instrument that only appends the seconds of each call."""
    now = time.perf_counter
    since = 0.0

    def around(_function: object, _name: str, before: bool, _result: object, *_arguments: object) -> None:
        nonlocal since
        if not before:
            clock.append(now() - since)
            return
        since = now()

    return around


def _overhead(arguments: int) -> Overhead:
    """The overhead of a call with a number of arguments, on this machine: it grows by the same time with each."""
    few, many = _measured_overhead(FEW_ARGUMENTS), _measured_overhead(MANY_ARGUMENTS)
    share = (arguments - FEW_ARGUMENTS) / (MANY_ARGUMENTS - FEW_ARGUMENTS)
    return Overhead(
        max(0.0, few.told_s + share * (many.told_s - few.told_s)),
        max(0.0, few.call_s + share * (many.call_s - few.call_s)),
        max(0.0, few.added_s + share * (many.added_s - few.added_s)),
    )


@cache
def _measured_overhead(arguments: int) -> Overhead:
    """The overhead of a call with a number of arguments, measured."""
    machine = relax.VirtualMachine(_idle(arguments), tvm.cpu())
    given = tvm.runtime.empty((1,), "float32")
    main = machine["main"]
    plain_s, told_s, instrumented_s = [], [], []
    clock: list[float] = []
    for _ in range(IDLE_RUNS):
        machine.set_instrument(None)
        started = time.perf_counter()
        main(given)
        plain_s.append((time.perf_counter() - started) / IDLE_CALLS)
        machine.set_instrument(_timer(clock))
        clock.clear()
        started = time.perf_counter()
        main(given)
        instrumented_s.append((time.perf_counter() - started) / IDLE_CALLS)
        told_s.append(statistics.median(clock))
    call_s = statistics.median(plain_s)
    return Overhead(statistics.median(told_s), call_s, max(0.0, statistics.median(instrumented_s) - call_s))


def _idle(arguments: int) -> Any:
    """A network of calls of an empty kernel."""
    buffers = [tirx.decl_buffer([1], "float32", f"p{number}") for number in range(arguments)]
    kernel = tirx.PrimFunc(buffers, tirx.Evaluate(0)).with_attr("global_symbol", "idle")
    builder = relax.BlockBuilder()
    given = relax.Var("x", relax.TensorType((1,), "float32"))
    variable = builder.add_func(kernel, "idle")
    with builder.function("main", [given], pure=False):
        for _ in range(IDLE_CALLS):
            builder.emit(relax.Call(variable, [given] * arguments))
        builder.emit_func_output(given)
    passes = relax.transform
    lower = tvm.transform.Sequential([
        passes.LowerRuntimeBuiltin(), passes.ComputePrimValue(), passes.VMShapeLower(), passes.AttachGlobalSymbol(),
    ])  # fmt: skip
    return relax.build(lower(builder.get()), target="llvm", relax_pipeline=None)
