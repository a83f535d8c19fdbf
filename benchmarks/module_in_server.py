"""A compiled network in a server: threads that share it, threads that end, and forks. Prints JSON.

``python benchmarks/module_in_server.py [NET.so]``: results of many threads must equal those of one thread to the bit,
no forked process may hang, and threads that end must leave neither threads nor memory.
"""

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from autosched_tvm.device.loaded_module import LoadedModule
from autosched_tvm.generated_inputs import random_inputs
from compiled_networks import compiled

NETWORK = "mtcnn-onet"
FORK_S = 60
"""Time limit of a forked process, in seconds. It runs two inferences."""
STARTERS = (1, 2, 8)
"""Numbers of threads that run inferences before the forks."""


def main() -> None:
    """Runs all parts in processes of their own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("module", type=Path, nargs="?", help="A compiled network, NET.so; without it, one is compiled.")
    parser.add_argument("--threads", type=int, default=8, help="Threads that share the module.")
    parser.add_argument("--calls", type=int, default=10_000, help="Inferences of each of these threads.")
    parser.add_argument("--forks", type=int, default=1_000, help="Forks after each number of threads.")
    parser.add_argument("--ended", type=int, default=1_000, help="Threads that run one inference and end.")
    given = parser.parse_args()
    with ExitStack() as held:
        module = given.module or held.enter_context(compiled([NETWORK]))[NETWORK]
        parts = {"threads": partial(_shared, module, given.threads, given.calls)}
        parts |= {f"forks_after_{count}": partial(_forks, module, count, given.forks) for count in STARTERS}
        parts["ended"] = partial(_ended, module, given.ended)
        found = {}
        for name, part in parts.items():
            found[name] = _apart(part)
            print(name, json.dumps(found[name]), file=sys.stderr, flush=True)
    print(json.dumps(found, indent=1))


def _apart(part: Callable[[], dict[str, Any]]) -> Any:
    """Returns the result of a function in a forked process, which loads the module itself."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, json.dumps(part()).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        said = answer.read()
    status = os.waitpid(child, 0)[1]
    return json.loads(said) if status == 0 and said else {"died": os.waitstatus_to_exitcode(status)}


def _loaded(path: Path) -> tuple[LoadedModule, list[dict[str, Any]], list[list[Any]]]:
    """Returns a module, some inputs, and its outputs for them in this thread."""
    module = LoadedModule(path)
    inputs = [random_inputs(module.info.inputs, seed) for seed in range(4)]
    return module, inputs, [module.run(one) for one in inputs]


def _equal(outputs: list[Any], expected: list[Any]) -> bool:
    return all(left.tobytes() == right.tobytes() for left, right in zip(outputs, expected, strict=True))


def _shared(path: Path, threads: int, calls: int) -> dict[str, Any]:
    module, inputs, expected = _loaded(path)

    def different(number: int) -> int:
        return sum(
            not _equal(module.run(inputs[(number + call) % 4]), expected[(number + call) % 4]) for call in range(calls)
        )

    started = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        wrong = sum(pool.map(different, range(threads)))
    spent_s = time.perf_counter() - started
    return {"calls": threads * calls, "different": wrong, "calls_per_s": round(threads * calls / spent_s)}


def _forks(path: Path, threads: int, forks: int) -> dict[str, Any]:
    module, inputs, expected = _loaded(path)
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda number: module.run(inputs[number % 4]), range(4 * threads)))
    codes: list[int] = []
    for number in range(forks):
        child = os.fork()
        if child == 0:
            signal.alarm(FORK_S)
            fine = all(
                _equal(module.run(inputs[(number + turn) % 4]), expected[(number + turn) % 4]) for turn in (0, 1)
            )
            os._exit(0 if fine else 1)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    return {"forks": forks, "wrong": codes.count(1), "hung": codes.count(-signal.SIGALRM), "fine": codes.count(0)}


def _ended(path: Path, count: int) -> dict[str, Any]:
    module, inputs, expected = _loaded(path)

    def one(number: int) -> None:
        assert _equal(module.run(inputs[number % 4]), expected[number % 4])

    def run(number: int) -> None:
        thread = threading.Thread(target=one, args=(number,))
        thread.start()
        thread.join()

    for number in range(8):
        run(number)
    threads, memory_kb = _usage()
    for number in range(count):
        run(number)
    now = _usage()
    return {"ended": count, "threads_more": now[0] - threads, "memory_more_mb": round((now[1] - memory_kb) / 1024, 2)}


def _usage() -> tuple[int, int]:
    """Returns the threads of this process, and its resident memory in KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    told = {name: value.split()[0] for name, _, value in (line.partition(":") for line in lines) if value.split()}
    return int(told["Threads"]), int(told["VmRSS"])


if __name__ == "__main__":
    main()
