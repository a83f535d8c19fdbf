"""``python stock_program.py PORT KEY PRIORITY ROUNDS``: a program that uses TVM only, and asks a tracker for boards.

Each round measures eight kernels by MetaSchedule's own RPC runner, and runs one in a separate session. Prints a line of
JSON for each round: the number of measured kernels, the error of the single one, and the seconds of the runner.
"""

import json
import sys
import tempfile
import time

import numpy as np
import tvm
from tvm import rpc, te
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.runner import EvaluatorConfig, RPCConfig, RPCRunner, RunnerInput

SIZE, KERNELS = 64, 8
SESSION_S = 30


def main(port: int, key: str, priority: int, rounds: int) -> None:
    """Builds a kernel, then measures it repeatedly."""
    a, b = (te.placeholder((SIZE, SIZE), name=name) for name in "ab")
    axis = te.reduce_axis((0, SIZE))
    c = te.compute((SIZE, SIZE), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), name="c")
    module = tvm.IRModule({"main": te.create_prim_func([a, b, c])})
    target = tvm.target.Target({"kind": "llvm", "num-cores": 1})
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/kernel.so"
        tvm.compile(module, target=target).export_library(path)
        inputs = [RunnerInput(path, "cpu", ArgInfo.from_entry_func(module, remove_preproc=True))] * KERNELS
        config = RPCConfig(
            tracker_host="127.0.0.1", tracker_port=port, tracker_key=key, session_priority=priority,
            session_timeout_sec=SESSION_S,
        )  # fmt: skip
        runner = RPCRunner(config, evaluator_config=EvaluatorConfig(1, 3, 5), max_workers=1)
        for _ in range(rounds):
            started = time.perf_counter()
            results = [future.result() for future in runner.run(inputs)]
            took_s = time.perf_counter() - started
            good = sum(result.error_msg is None and bool(result.run_secs) for result in results)
            said = {"good": good, "error": alone(port, key, priority, path), "took_s": took_s}
            said["why"] = next((str(result.error_msg)[-300:] for result in results if result.error_msg), "")
            print(json.dumps(said), flush=True)


def alone(port: int, key: str, priority: int, path: str) -> float:
    """Returns the error of a product that is computed in a separate session."""
    session = rpc.connect_tracker("127.0.0.1", port).request(key, priority=priority, session_timeout=SESSION_S)
    session.upload(path)
    function, device = session.load_module("kernel.so")["main"], session.cpu(0)
    x, y = (np.random.default_rng(seed).random((SIZE, SIZE), "float32") for seed in (1, 2))
    tensors = [tvm.runtime.tensor(array, device) for array in (x, y, np.zeros_like(x))]
    function(*tensors)
    return float(np.abs(tensors[2].numpy() - x @ y).max())


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
