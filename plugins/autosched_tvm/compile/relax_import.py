"""Networks imported by TVM's other front ends: their representation, and the checks that both front ends share."""

import contextlib
import io
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import relax

from autosched.errors import ModelRejected, RequestError
from autosched_tvm.compile.frontend.input_ranges import MASK_HIGH, PLAIN_HIGH, with_kinds
from autosched_tvm.compile.frontend.preparation import Shapes
from autosched_tvm.compile.import_check import SAID_MAX
from autosched_tvm.tensors import Kind, Tensor
from autosched_tvm.tvm_types import Expr, IRModule
from autosched_tvm.worker_failures import gist

_SAME_VALUES = {
    "relax.astype", "relax.reshape", "relax.squeeze", "relax.expand_dims", "relax.permute_dims", "relax.flatten",
    "relax.strided_slice", "relax.concat", "relax.broadcast_to",
}  # fmt: skip
"""Operators whose result holds the numbers of their first operand."""


@dataclass
class Imported:
    """A network that is imported as a Relax module."""

    module: IRModule
    inputs: tuple[Tensor, ...]
    outputs: tuple[str, ...]
    format: str
    """Format of the file, and its version."""
    nodes: int
    fixes: list[str] = field(default_factory=list)


@contextlib.contextmanager
def quietly(file: str) -> Iterator[None]:
    """Suppresses what a front end prints. Turns each exception into ModelRejected."""
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (ModelRejected, RequestError):
        raise
    except Exception as error:  # the front ends raise various exceptions
        raise ModelRejected(
            f"TVM cannot import {file}: {gist(error)[:SAID_MAX]}."
            " Export the model to ONNX instead, or replace that layer"
        ) from error


def fixed(module: IRModule, names: tuple[str, ...], shapes: Shapes, fixes: list[str]) -> IRModule:
    """Returns the module with all input dimensions fixed: as given in `shapes`, and unknown batches at 1.

    Raises RequestError for a shape that does not fit, ModelRejected where one is missing.
    """
    parameters = dict(zip(names, module["main"].params, strict=True))
    for name in shapes:
        if name not in parameters:
            raise RequestError(f"the model has no input {name!r}; its inputs are: {', '.join(map(repr, parameters))}")
    known: dict[Any, int] = {}
    for name, parameter in parameters.items():
        if name in shapes:
            _match(name, _dims(parameter), shapes[name], known)
    missing = []
    for name, parameter in parameters.items():
        for place, dim in enumerate(_dims(parameter)):
            if isinstance(dim, int) or dim in known:
                continue
            if place == 0:
                known[dim] = 1
                fixes.append(f"unknown batch of {name!r} fixed at 1")
            else:
                missing.append((name, _dims(parameter)))
    if missing:
        name, dims = missing[0]
        there = ",".join(str(d) if isinstance(d, int) else "?" for d in dims)
        example = ",".join(str(d) if isinstance(d, int) else "1" if n == 0 else "128" for n, d in enumerate(dims))
        raise ModelRejected(
            f"the model's input shapes are not fixed: {name!r} is {there}. Fix them, for example:"
            f" --shape {name}={example}"
        )
    return relax.transform.BindSymbolicVars(known, "main")(module) if known else module


def _dims(parameter: Expr) -> list[int | Expr]:
    """Returns a parameter's shape: numbers, and TVM variables for unknown dimensions."""
    return [int(d) if isinstance(d, int | tvm.tirx.IntImm) else d for d in parameter.ty.shape]


def _match(name: str, dims: list[Any], wanted: tuple[int, ...], known: dict[Any, int]) -> None:
    numbers = ",".join(map(str, wanted))
    if any(size <= 0 for size in wanted):
        raise RequestError(f"--shape {name}={numbers}: each dimension must be at least 1")
    if len(dims) != len(wanted) or any(
        (d if isinstance(d, int) else known.get(d, w)) != w for d, w in zip(dims, wanted, strict=False)
    ):
        there = ",".join(str(d) if isinstance(d, int) else "?" for d in dims)
        raise RequestError(f"--shape {name}={numbers} does not fit input {name!r}, which is {there}")
    known.update((d, w) for d, w in zip(dims, wanted, strict=True) if not isinstance(d, int))


def tensors(module: IRModule, names: tuple[str, ...]) -> tuple[Tensor, ...]:
    """Returns the inputs of a module with fixed shapes."""
    highs = _highs(module)
    made = []
    for name, parameter, high in zip(names, module["main"].params, highs, strict=True):
        bound = MASK_HIGH if "mask" in name.lower() else high
        made.append(Tensor(name, tuple(int(d) for d in parameter.ty.shape), str(parameter.ty.dtype), bound))
    return with_kinds(made, lambda _: Kind.IMAGE)


def _highs(module: IRModule) -> list[int]:
    """Returns the exclusive upper bound of each integer parameter: the size of the smallest table that it indexes."""
    main = module["main"]
    origin = {parameter: number for number, parameter in enumerate(main.params)}
    bounds: Mapping[int, list[int]] = {number: [] for number in origin.values()}
    for block in main.body.blocks:
        for binding in block.bindings:
            call = getattr(binding, "value", None)
            if not isinstance(call, relax.Call) or not isinstance(call.op, tvm.ir.Op):
                continue
            if call.op.name == "relax.take" and call.args[1] in origin:
                table = [int(d) for d in call.args[0].ty.shape]
                axis = call.attrs.axis
                bounds[origin[call.args[1]]].append(table[int(axis)] if axis is not None else len(table))
            elif call.op.name in _SAME_VALUES and call.args[0] in origin:
                origin[binding.var] = origin[call.args[0]]
    return [min(found, default=PLAIN_HIGH) for found in bounds.values()]
