"""Resolves the target `auto`, builds a kernel by rule for it and runs it: on whatever CPU this process sees.

Prints JSON: the name LLVM has for the CPU, features that the target asks for and the CPU does not grant, classes of the
target, whether the kernel's result is right. NumPy's matrix product is not used: its libraries take a CPU by its name.
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import tvm
from tvm import te

from autosched_tvm.compile import candidate_build, intrinsics, targets, task_extraction
from autosched_tvm.granted_features import granted

SIZE = 64
ERROR_MAX = 1e-3


def main() -> None:
    """Tries it."""
    intrinsics.install()
    text = targets.resolve("auto", 1)
    target = json.loads(text)
    here, asked = granted(), targets.features(target)
    with tempfile.TemporaryDirectory() as folder:
        task, kernel = Path(folder) / "task.json", Path(folder) / "kernel.so"
        task_extraction.save(_product(), task)
        candidate_build.build_by_rule(str(task), text, str(kernel))
        function = tvm.runtime.load_module(str(kernel))["main"]
        left, right = (np.random.default_rng(seed).random((SIZE, SIZE), "float32") for seed in (1, 2))
        result = tvm.runtime.tensor(np.zeros((SIZE, SIZE), "float32"))
        function(tvm.runtime.tensor(left), tvm.runtime.tensor(right), result)
        got = result.numpy()
    errors = [
        abs(sum(float(x) * float(y) for x, y in zip(left[i], right[:, j], strict=True)) - float(got[i, j]))
        for i in (0, 5, SIZE - 1)
        for j in (0, 7, SIZE - 1)
    ]
    told = {
        "cpu": target["mcpu"],
        "not_granted": sorted(name for name in asked if not here.get(name, True)),
        "classes": list(targets.cpu_classes(tvm.target.Target(target))),
        "right": max(errors) < ERROR_MAX,
    }
    sys.stdout.write(json.dumps(told) + "\n")


def _product() -> tvm.IRModule:
    left, right = te.placeholder((SIZE, SIZE), name="l"), te.placeholder((SIZE, SIZE), name="r")
    k = te.reduce_axis((0, SIZE), name="k")
    product = te.compute((SIZE, SIZE), lambda i, j: te.sum(left[i, k] * right[k, j], axis=k), name="p")
    return tvm.IRModule({"main": te.create_prim_func([left, right, product]).with_attr("global_symbol", "main")})


if __name__ == "__main__":
    main()
