"""A network of one parallel kernel, x + x."""

import json
from pathlib import Path

import numpy as np
import tvm
from tvm import relax

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


def tuned_for(network: Path, cores: int, **target: object) -> Path:
    """Writes the file beside a network, which says for how many cores it was tuned."""
    tensor = {"name": "x", "shape": [64], "dtype": "float32"}
    side = {
        "format": 1, "name": "net", "build": "tuned", "inputs": [tensor], "outputs": [tensor], "versions": {},
        "target": {"kind": "llvm", "num-cores": cores, **target},
    }  # fmt: skip
    network.with_suffix(".json").write_text(json.dumps(side))
    return network
