"""Loads, runs and times a compiled network with NumPy arrays."""

import json
import math
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from autosched import machine
from autosched.backend import Timing
from autosched.errors import RequestError
from autosched.records.statistics import summarize
from autosched_tvm.compile import targets
from autosched_tvm.compile.side_file import SideFile, files_of, read_side
from autosched_tvm.device.inference_threads import THREADS, Context
from autosched_tvm.device.thread_pool import default as default_threads
from autosched_tvm.device.thread_pool import use as use_threads
from autosched_tvm.generated_inputs import random_inputs
from autosched_tvm.granted_features import granted
from autosched_tvm.tensors import Array, Tensor, describe
from autosched_tvm.tvm_types import DeviceTensor

if TYPE_CHECKING:
    from autosched_tvm.device.place import Place


class LoadedModule:
    """A loaded network. May be called from any number of threads; each inference uses `threads` threads."""

    def __init__(self, path: Path, *, threads: int | None = None, place: "Place | None" = None) -> None:
        """`threads`: number of threads; None: the number of cores that it was tuned for, if there are as many. `place`:
        None: this process.

        Raises NotFound or RequestError.
        """
        library, side = files_of(path)
        self.info = read_side(side)
        if threads is not None and threads < 1:
            raise RequestError(f"threads is {threads}: at least 1 is needed, or None for what {library.name} asks for")
        self.threads = threads or default_threads(self.info.cores)
        from tvm import relax

        from autosched_tvm.device.place import HERE

        self._place = place or HERE
        self._is_here = place is None or place is HERE
        if self._is_here and (lacking := _lacking(self.info)):
            raise RequestError(
                f"{library} was compiled for a CPU with {targets.listed(lacking)}, which this machine's CPU lacks or"
                " its hypervisor withholds: it would end this process with SIGILL. Tune the model here, or elsewhere"
                f" for this CPU, with --target '{json.dumps(targets.of_this_machine())}'"
            )
        try:
            self._library = self._place.load(str(library))
            self._mains: WeakKeyDictionary[Context, Any] = WeakKeyDictionary()
            """Entry points by the thread that runs kernels: a virtual machine serves one thread at a time."""
            self._machine = relax.VirtualMachine(self._library, self._place.device)
            self._main = self._machine["main"]
            """Entry point of the first context, or on the board."""
            self._first: Context | None = None
            self._taking = threading.Lock()
        except Exception as error:  # the loader of another program's file may raise any exception
            if not machine.executable(library.parent):
                raise RequestError(
                    f"{library} cannot be loaded: files in {library.parent} may not be executed (its file system is"
                    " mounted with noexec). Copy it to another folder, with its .json"
                ) from error
            raise RequestError(
                f"{library} cannot be loaded: {str(error).strip().splitlines()[-1][:300]}. It was compiled with"
                f" {_said(self.info.versions)}; compile it again with: autosched compile ID"
            ) from error

    def run(self, inputs: Mapping[str, Array] | Sequence[Array]) -> list[Array]:
        """The outputs in order. Raises RequestError for inputs that do not fit."""
        return self._arrays(self.call(self._tensors(inputs)))

    def evaluate(self, inputs: Mapping[str, Array] | Sequence[Array] | None = None, *, budget_s: float = 5.0) -> Timing:
        """Latency of one inference, repeated for about `budget_s` seconds."""
        tensors = self._tensors(random_inputs(self.info.inputs) if inputs is None else inputs)
        deadline = time.perf_counter() + budget_s
        self.sample(tensors, 1)
        once_s = self.sample(tensors, 1)
        number = max(1, int(0.02 / max(once_s, 1e-9)))
        samples = [once_s] if number == 1 else []
        while len(samples) < 3 or (time.perf_counter() < deadline and len(samples) < 200):
            samples.append(self.sample(tensors, number))
        return summarize(self.info.build, samples)

    def machine(self) -> Any:
        """A new virtual machine for the network, which may be instrumented."""
        from tvm import relax

        return relax.VirtualMachine(self._library, self._place.device)

    def bind(self, inputs: Mapping[str, Array] | Sequence[Array]) -> list[DeviceTensor]:
        """Inputs in the form of `sample`."""
        return self._tensors(inputs)

    def sample(self, tensors: list[DeviceTensor], number: int) -> float:
        """Mean latency of `number` calls in a row, in seconds."""
        if not self._is_here:
            timer = self._machine.time_evaluator("main", self._place.device, number=number)
            return float(timer(*tensors).mean)
        started = time.perf_counter()
        self._repeated(tensors, number)
        return (time.perf_counter() - started) / number

    def call(self, tensors: list[Any]) -> Any:
        """Run one inference, with the inputs of `bind`."""
        if not self._is_here:
            return self._main(*tensors)
        return self._repeated(tensors, 1)

    def _repeated(self, tensors: list[DeviceTensor], number: int) -> DeviceTensor:
        """Run several inferences in this process; returns the result of the last."""
        context = THREADS.mine(self.threads)
        if context is None:
            return THREADS.run(self.threads, partial(self._in_context, tensors, number))
        with context.running:
            use_threads(self.threads)
            return self._in_context(tensors, number, context)

    def _in_context(self, tensors: list[DeviceTensor], number: int, context: Context) -> DeviceTensor:
        main = self._main if context is self._first else self._main_of(context)
        for _ in range(number - 1):
            main(*tensors)
        return main(*tensors)

    def _main_of(self, context: Context) -> Any:
        """The network's entry point for a thread that runs kernels."""
        with self._taking:
            if self._first is None:
                self._first = context
            if context is self._first:
                return self._main
            if (main := self._mains.get(context)) is None:
                main = self._mains[context] = self.machine()["main"]
            return main

    def _arrays(self, result: Any) -> list[Array]:
        return [r.numpy() for r in result] if not hasattr(result, "numpy") else [result.numpy()]

    def _tensors(self, inputs: Mapping[str, Array] | Sequence[Array]) -> list[DeviceTensor]:
        return [self._place.tensor(array) for array in fit(self.info.inputs, inputs)]


def _lacking(info: SideFile) -> list[str]:
    """The features that a module may use and this machine withholds."""
    has = granted()
    if info.features:
        return [name for name in info.features if not has.get(name, True)]
    return targets.withheld(json.dumps(info.target), has)


def fit(wanted: Sequence[Tensor], given: Mapping[str, Array] | Sequence[Array]) -> list[Array]:
    """The given arrays in the order of the inputs. Raises RequestError for a wrong name, number, shape or type."""
    names = [tensor.name for tensor in wanted]
    if isinstance(given, Mapping):
        if unknown := [name for name in given if name not in names]:
            raise RequestError(f"the module has no input {unknown[0]!r}; its inputs are: {', '.join(map(repr, names))}")
        if lacking := [name for name in names if name not in given]:
            raise RequestError(f"input {lacking[0]!r} is missing; the module wants: {', '.join(map(describe, wanted))}")
        given = [given[name] for name in names]
    if len(given) != len(wanted):
        raise RequestError(f"{len(given)} inputs given, {len(wanted)} wanted: {', '.join(map(describe, wanted))}")
    arrays = [np.asarray(array, order="C") for array in given]
    for tensor, array in zip(wanted, arrays, strict=True):
        if tuple(array.shape) != tensor.shape or str(array.dtype) != tensor.dtype:
            size = math.prod(tensor.shape)
            way = f"convert it, for example: x.astype({tensor.dtype!r}).reshape({tensor.shape})"
            raise RequestError(
                f"input {describe(tensor)} was given as {array.dtype} {'x'.join(map(str, array.shape)) or 'scalar'};"
                f" {way if array.size == size else f'it takes {size} numbers, and these are {array.size}'}"
            )
    return arrays


def _said(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in versions.items()) or "unknown versions"
