"""``make gpu-candidates``: draws candidates for GPUs, and runs each on a fake one in three orders of threads.

Kinds: ``templates``, MetaSchedule's ``cuda`` and ``cuda-tensorcore``, and ``broken``: kernels that lack their barriers,
exceed a bound or wait for too few copies. Each run is in a process of its own, since an error stays until its process
ends. Prints a line for each candidate that is not as it should be, and counts as JSON.
"""

import argparse
import collections
import itertools
import json
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tvm
import tvm_ffi
from tvm import s_tir
from tvm.s_tir import meta_schedule as ms

import fakecuda
from autosched_backend_autotvm import template_matching
from autosched_tvm.compile import intrinsics, targets
from unit.autotvm import kernels
from unit.autotvm.test_templates import CASES, drawn

ORDERS = ("forward", "reverse", "random:7")
TARGET = targets.of_gpu(89)
EXACT, HALF = 1e-4, 2e-2
"""Maximum error as a share of the largest result, for sums of float32 and of float16."""
RIGHT, WRONG, REFUSED, NOT_BUILT = "right", "wrong", "refused", "not built"
KINDS = ("templates", "cuda", "cuda-tensorcore", "broken")


class Candidate(NamedTuple):
    """A candidate of a task."""

    name: str
    task: Any
    module: Any
    tolerance: float = EXACT


def templates(count: int, seed: int) -> Iterator[Candidate]:
    """Yields configurations of the project's templates, of all cases in turn."""
    target = tvm.target.Target(TARGET)
    share = -(-count // len(CASES))
    chosen = {
        case: drawn(template_matching.find(make(), target).template, share, seed) for case, (_, make) in CASES.items()
    }
    for number in range(count):
        case = list(CASES)[number % len(CASES)]
        task = CASES[case][1]()
        schedule = s_tir.Schedule(task, debug_mask=0, enable_check=False)
        config = chosen[case][number // len(CASES)]
        template_matching.find(task, target).template.apply(schedule, config)
        yield Candidate(f"{case}: {json.dumps(config)}", task, schedule.mod)


def sketches(space: str, count: int, seed: int, arch: int = 89) -> Iterator[Candidate]:
    """Yields candidates of MetaSchedule's rules for a GPU, of all tasks in turn."""
    from unit.cuda.tasks import TASKS

    intrinsics.install("cuda" if "tensorcore" in space else None)
    target = tvm.target.Target(targets.of_gpu(arch))
    tasks = TASKS[space]
    for name, make in tasks.items():
        task = make()
        context = ms.TuneContext(
            task, target=target, search_strategy="replay-trace", rand_state=seed, num_threads=1,
            space_generator=ms.space_generator.PostOrderApply(sch_rules=space, postprocs=space, mutator_probs=space),
        )  # fmt: skip
        share = -(-count // len(tasks))
        context.pre_tuning(max_trials=share, num_trials_per_iter=share)
        for number, found in enumerate(context.generate_measure_candidates() or ()):
            yield Candidate(f"{name}: {number}", task, found.sch.mod, HALF if "float16" in name else EXACT)
        context.post_tuning()


def without_barriers(code: str) -> str | None:
    """Returns a source without its barriers; None if it has none."""
    changed = code.replace("__syncthreads();", "")
    return changed if changed != code else None


def with_a_larger_index(code: str) -> str | None:
    """Returns a source whose last store goes one element too far."""
    stores = list(re.finditer(r"(?m)^\s+(\w+)\[(.*)\] = ", code))
    parameters = re.findall(r"(\w+)(?=[,)])", code[code.rindex("__global__") :].partition("{")[0])
    mine = [store for store in stores if store[1] in parameters]
    if not mine:
        return None
    store = mine[-1]
    return f"{code[: store.start(2)]}{store[2]} + 1{code[store.end(2) :]}"


def with_a_shorter_wait(code: str) -> str | None:
    """Returns a source that waits for one group of asynchronous copies less each time."""
    changed = re.sub(r"cp\.async\.wait_group (\d+);", lambda found: f"cp.async.wait_group {int(found[1]) + 1};", code)
    return changed if changed != code else None


BREAKERS = {"barriers": without_barriers, "bound": with_a_larger_index, "wait": with_a_shorter_wait}


def built(candidate: Candidate, way: str | None = None) -> Any:
    """Returns the library of a candidate, broken in a way; None if there is nothing to break."""
    applied = []

    @tvm_ffi.register_global_func("tvm_callback_cuda_postproc", override=True)
    def changed(code: str, _target: Any) -> str:
        new = BREAKERS[way](code) if way else code
        applied.append(new is not None)
        return new or code

    config = {"tirx.use_async_copy": True} if way == "wait" else {}
    with tvm.target.Target(TARGET) as target, tvm.transform.PassContext(config=config):
        library = tvm.compile(candidate.module, target=target)
    return library if all(applied) else None


def outcome(library: Any, judge: "Judge", order: str, tolerance: float) -> str:
    """Runs a library in a process of its own, and returns what came of it."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.environ["CUDA_FAKE_ORDER"] = order
            text = RIGHT if judge.error(library) <= tolerance else WRONG
        except Exception as error:  # of TVM's many types; the text is judged
            text = f"{REFUSED}: {str(error).strip().splitlines()[-1][:200]}"
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as answer:
        text = answer.read()
    _, status = os.waitpid(child, 0)
    return text or f"{REFUSED}: the process ended with {status}"


class Judge(kernels.Judge):
    """Results of a task on the CPU, for inputs that are always the same, beside those on a GPU."""

    def error(self, library: Any) -> float:
        """The largest difference as a share of the largest result."""
        device = tvm.cuda(0)
        buffers = [tvm.runtime.tensor(array, device) for array in self._inputs[:-1]]
        buffers.append(tvm.runtime.empty(self._inputs[-1].shape, str(self._inputs[-1].dtype), device))
        library["main"](*buffers)
        device.sync()
        difference = np.abs(buffers[-1].numpy().astype("float64") - self._expected.astype("float64"))
        return float(np.nan_to_num(difference, nan=np.inf).max() / np.abs(self._expected).max())


def candidates(kind: str, count: int, seed: int) -> Iterator[tuple[Candidate, str | None]]:
    """Yields candidates, each with the way in which it is to be broken, or None. Of those to be broken there are more
    than asked for, since some have nothing to break."""
    if kind == "templates":
        yield from ((candidate, None) for candidate in templates(count, seed))
    elif kind == "broken":
        whole = zip(templates(2 * count, seed), itertools.cycle(("barriers", "bound")))
        waits = ((candidate, "wait") for candidate in sketches("cuda", count, seed))
        for two in itertools.zip_longest(*[whole] * 2):
            yield from filter(None, (*two, next(waits, None)))
    else:
        yield from ((candidate, None) for candidate in sketches(kind, count, seed))


class Found(NamedTuple):
    """Outcomes of some candidates."""

    candidates: int
    outcomes: collections.Counter[str]


def share(kind: str, count: int, seed: int, number: int, shares: int) -> Found:
    """Judges one of equal shares of the candidates."""
    found = Found(0, collections.Counter())
    judges: dict[str, Judge] = {}
    kept = []  # TVM opens CUDA when a library is deleted, and no process may use it that was forked afterwards
    wanted = REFUSED if kind == "broken" else RIGHT
    for candidate, way in itertools.islice(candidates(kind, count, seed), number, None, shares):
        if found.candidates >= -(-count // shares):
            break
        try:
            library = built(candidate, way)
        except Exception as error:  # of TVM's many types
            found.outcomes[NOT_BUILT] += 1
            print(f"{NOT_BUILT}: {candidate.name}: {str(error).strip().splitlines()[-1][:300]}", flush=True)
            continue
        if library is None:
            continue
        found = found._replace(candidates=found.candidates + 1)
        kept.append(library)
        key = candidate.name.partition(":")[0]
        judge = judges[key] = judges.get(key) or Judge(candidate.task)
        for order in ORDERS:
            came = outcome(library, judge, order, candidate.tolerance)
            found.outcomes[came.partition(":")[0] + (f" ({way})" if way else "")] += 1
            if not came.startswith(wanted):
                print(f"{came}: {order}: {way or ''} {candidate.name}", flush=True)
    return found


def main() -> int:
    """Returns 1 if a result was not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(KINDS))
    parser.add_argument(
        "--count", type=int, help="number of candidates of each kind (default: 200, and 40 broken ones)"
    )
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if "CUDA_FAKE" not in os.environ:  # the loader reads its variables when a process starts
        with tempfile.TemporaryDirectory(prefix="fakecuda-") as folder:
            words = [sys.executable, "-m", "fakecuda.candidates", *sys.argv[1:]]
            return subprocess.run(words, env=fakecuda.Machine(Path(folder)).environment(), check=False).returncode
    good = True
    shares = len(os.sched_getaffinity(0))
    for kind in args.kinds or KINDS:
        if kind not in KINDS:
            parser.error(f"there is no kind {kind!r}")
        count = args.count or (40 if kind == "broken" else 200)
        with multiprocessing.get_context("fork").Pool(shares) as pool:
            found = pool.starmap(share, [(kind, count, args.seed, number, shares) for number in range(shares)])
        outcomes = sum((one.outcomes for one in found), collections.Counter())
        print(json.dumps({"kind": kind, "candidates": sum(one.candidates for one in found), **outcomes}), flush=True)
        wanted = REFUSED if kind == "broken" else RIGHT
        good &= all(name.startswith(wanted) for name in outcomes)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
