"""A network of one parallel kernel, x + x."""

import json
from pathlib import Path

import msgspec
import numpy as np
import tvm
from tvm import relax

from autosched_tvm.compile import outside_weights
from autosched_tvm.tensors import Array

X = np.arange(64, dtype="float32")


def written(path: Path) -> Path:
    """Compiles the network to a file; returns its path."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((64,), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.add(x, x)))
    module = relax.transform.LegalizeOps()(builder.get())
    schedule = tvm.s_tir.Schedule(module)
    schedule.work_on("add")
    schedule.parallel(schedule.get_loops(schedule.get_sblock("T_add"))[0])
    tvm.compile(schedule.mod, target=tvm.target.Target({"kind": "llvm"})).export_library(str(path))
    return path


def tuned_for(network: Path, cores: int, *features: str) -> Path:
    """Writes the file beside a network, which says for how many cores it was tuned."""
    tensor = {"name": "x", "shape": [64], "dtype": "float32"}
    side = {
        "format": 1, "name": "net", "build": "tuned", "inputs": [tensor], "outputs": [tensor], "versions": {},
        "target": {"kind": "llvm", "num-cores": cores}, "features": features,
    }  # fmt: skip
    network.with_suffix(".json").write_text(json.dumps(side))
    return network


def of_two_outputs(path: Path) -> Path:
    """Compiles a network with outputs of several kinds: x > 10, the sum of x, and x itself."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((64,), "float32"))
    with builder.function("main", [x]):
        flags = builder.emit(relax.op.greater(x, relax.const(10.0, "float32")))
        builder.emit_func_output(relax.Tuple([flags, builder.emit(relax.op.sum(x)), x]))
    module = relax.transform.LegalizeOps()(builder.get())
    tvm.compile(module, target=tvm.target.Target({"kind": "llvm"})).export_library(str(path))
    tuned_for(path, 1)
    side = json.loads(path.with_suffix(".json").read_text())
    side["outputs"] = [
        {"name": name, "shape": shape, "dtype": dtype}
        for name, shape, dtype in (("flags", [64], "bool"), ("total", [], "float32"), ("same", [64], "float32"))
    ]
    path.with_suffix(".json").write_text(json.dumps(side))
    return path


def of_weights(path: Path, megabytes: int, *, inside: bool = False, rows: int | None = None) -> Path:
    """Compiles a network with weights of a size: the largest sums of x and its weights, which are ones.

    `inside`: the weights lie in the library, as in files of format 1. `rows`: x has as many rows of 64 numbers; None: x
    has one dimension.
    """
    weights = relax.const(np.ones((megabytes * 4096, 64), "float32"))
    builder = relax.BlockBuilder()
    shape = (64,) if rows is None else (rows, 64)
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        wide = x if rows is None else builder.emit(relax.op.expand_dims(x, 1))
        builder.emit_func_output(builder.emit(relax.op.max(builder.emit(relax.op.add(wide, weights)), axis=-2)))
    module = relax.transform.LegalizeOps()(builder.get())
    target = tvm.target.Target({"kind": "llvm"})
    if inside:
        tvm.compile(module, target=target).export_library(str(path))
        return tuned_for(path, 1)
    outside: list[Array] = []
    steps = [relax.get_default_pipeline(target), outside_weights.taken_into(outside)]
    relax.build(module, target, relax_pipeline=tvm.transform.Sequential(steps)).export_library(str(path))
    described_as = {"format": 2, "library": outside_weights.part_of(path)}
    described_as["weights"] = outside_weights.append_to(path, outside)
    tuned_for(path, 1)
    side = json.loads(path.with_suffix(".json").read_text()) | described_as
    side["inputs"][0]["shape"] = side["outputs"][0]["shape"] = shape
    path.with_suffix(".json").write_bytes(msgspec.json.encode(side))
    return path
