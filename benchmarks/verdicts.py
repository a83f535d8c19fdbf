"""Counts wrong verdicts on trained networks: ``python benchmarks/verdicts.py [NAME ...] [--models DIR]``.

Each network of networks.toml is compiled with a schedule of the template search for each task, and judged on several
samples of inputs, with several random seeds: a rejected build is a false rejection. Then kernels of the network are
broken on purpose, one at a time: a loop that ends one step early, a sum that is not accumulated, swapped operands, a
changed constant, an index off by one. A kernel counts as broken if its own results on random inputs are wrong. An
accepted network with a broken kernel is a false acceptance, unless its outputs are at least as near to the reference as
those of the correct build: such a network hides the error, and is counted separately.

Each network has its own process. Results are added to benchmarks/results/verdicts.json after each network, and a
network that is there is skipped without --again.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from networks import Network, networks
from raw_results import with_origin

from autosched.backend import Lease
from autosched.model import JobSpec, Record

RESULTS = Path(__file__).parent / "results" / "verdicts.json"
NETWORK_TIMEOUT_S = 1500.0
MATERIAL_SHARE = 1e-3
"""Minimum error of a broken kernel, as a share of its largest result."""
ATTEMPTS_MAX = 20
"""Maximum number of mutations tried for each broken kernel."""
CANDIDATES = 2
"""Number of candidates that are built for each task."""
OPTIONS: dict[str, bool | int | float | str] = {"min_repeat_ms": 1.0, "repeat": 1}


def main() -> int:
    """Judges the named networks, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="networks of networks.toml")
    parser.add_argument("--models", type=Path, metavar="DIR", help="where NAME.onnx lie; default: fetched by pip")
    parser.add_argument("--seeds", type=int, default=5, help="verdicts on the right build")
    parser.add_argument("--broken", type=int, default=3, help="broken builds of each network")
    parser.add_argument("--again", action="store_true", help="judge networks again that were judged before")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(judged(networks(*args.names)[0], args)))
        return 0
    told: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for network in networks(*args.names):
        if network.name in told and not args.again:
            continue
        told[network.name] = row = with_origin(_in_child(network, args))
        RESULTS.write_text(json.dumps(told, indent=1) + "\n")
        print(network.name, json.dumps(row)[:400], file=sys.stderr, flush=True)
    rows = [row for row in told.values() if isinstance(row, dict) and "verdicts" in row]
    hidden = sum(len(row["masked"]) for row in rows)
    print(
        f"{len(rows)} networks, {sum(row['verdicts'] for row in rows)} verdicts on right builds:"
        f" {sum(row['rejected'] for row in rows)} rejected; {sum(len(row['broken']) for row in rows)} broken builds:"
        f" {sum(one['accepted'] for row in rows for one in row['broken'])} accepted, {hidden} hidden",
        file=sys.stderr,
    )
    print(json.dumps(told))
    return 0


def _in_child(network: Network, args: argparse.Namespace) -> dict[str, Any]:
    words = [sys.executable, __file__, network.name, "--one", "--seeds", str(args.seeds), "--broken", str(args.broken)]
    if args.models is not None:
        words += ["--models", str(args.models)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=NETWORK_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return {"skipped": f"not judged within {NETWORK_TIMEOUT_S:.0f} s"}
    if done.returncode:
        return {"skipped": (done.stderr.strip().splitlines() or ["no message"])[-1][:300]}
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def judged(network: Network, args: argparse.Namespace) -> dict[str, Any]:
    """Returns the verdicts on one network."""
    from autosched_tvm.device.loaded_module import LoadedModule
    from autosched_tvm.evaluation import input_samples
    from autosched_tvm.evaluation.verification import judge_of
    from autosched_tvm.evaluation.verification_messages import Request

    core = max(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="autosched-verdicts-") as temporary:
        folder = Path(temporary)
        model = args.models / f"{network.name}.onnx" if args.models is not None else network.fetch(folder)
        session = _compiled(network, model, folder, core)
        os.sched_setaffinity(0, {core})
        builds = Path(session._compilation.folder)
        default, tuned = (LoadedModule(builds / name) for name in ("default", "tuned"))
        request = Request(tuple(form.path for form in session._forms), 1)
        row: dict[str, Any] = {"verdicts": 0, "rejected": 0, "largest": 0.0, "broken": [], "masked": []}
        judge: Any = None
        for seed in range(args.seeds):
            given = input_samples.of(default.info.inputs, "", seed * input_samples.SEEDS)
            other = judge_of(request, builds / "tuned", given, default)
            judge = judge or other
            check = other.check(tuned)
            row["verdicts"] += 1
            row["rejected"] += not check.equal
            row["largest"] = max(row["largest"], check.max_abs_error / check.tolerance if check.tolerance else 0.0)
            row["notes"] = other.notes
            if check.difference is not None:
                row["difference"] = repr(check.difference)
        right = judge.check(tuned)
        for number in range(args.broken if right.equal else 0):
            found = _broken_build(session, np.random.default_rng([number, 7]), folder / f"broken-{number}")
            if found is None:
                continue
            what, path = found
            check = judge.check(LoadedModule(path))
            if check.equal and check.max_abs_error <= right.max_abs_error:
                row["masked"].append(what)
                continue
            share = check.max_abs_error / check.tolerance if check.tolerance else check.max_abs_error
            row["broken"].append({"what": what, "accepted": check.equal, "error_of_tolerance": share})
    return row


def _compiled(network: Network, model: Path, folder: Path, core: int) -> Any:
    """Returns a session whose network is compiled with a schedule for each task."""
    from autosched_backend_autotvm import AutoTvmBackend

    def lease(stage: str) -> Lease:
        return Lease(stage, ("cpu0",), (core,), NETWORK_TIMEOUT_S)

    spec = JobSpec(name="net", model="0" * 64, options=OPTIONS, shapes=network.shapes)
    session: Any = AutoTvmBackend().open(spec, model, folder / "work", folder / "out", 1)
    records: list[Record] = []
    for info in session.import_network(lease("import")).tasks:
        tuner = session.tuner(info, 1)
        try:
            built = tuner.build(tuner.select(CANDIDATES, lease("select")), lease("build"))
        except Exception as error:  # a task without a template stays untuned
            print(f"{info.name}: {error}", file=sys.stderr)
            continue
        for one in tuner.profile(built, lease("profile")):
            records.append(
                Record(
                    task=info.task, number=len(records), candidate=one.candidate, latency_s=one.latency_s,
                    failure=one.failure,
                )
            )  # fmt: skip
    session.compile(records, lease("compile"))
    return session


def _broken_build(session: Any, random: np.random.Generator, path: Path) -> tuple[str, Path] | None:
    """Returns the broken kernel in words, and the network with it; None when no kernel could be broken."""
    from autosched_tvm.compile import candidate_build, model_sources, network_compiler, task_extraction
    from autosched_tvm.compile.layouts.layout_option import LayoutOption

    compilation = session._compilation
    target = candidate_build.load_target(compilation.target)
    choices = session._choices()
    schedules, _ = network_compiler.applied(choices)
    source = model_sources.load(Path(compilation.model))
    layout = LayoutOption(compilation.layout)
    fused, _ = network_compiler.laid_out(source.cleaned(target), target, choices, layout, winograd=compilation.winograd)
    used = [key for key, one in schedules.items() if network_compiler.with_schedules(fused, {key: one})[1]]
    present = {task_extraction.hash_of(kernel) for _, kernel in network_compiler.kernels(fused)}
    for _ in range(ATTEMPTS_MAX if used else 0):
        key = used[int(random.integers(len(used)))]
        name, mutation = MUTATIONS[int(random.integers(len(MUTATIONS)))]
        functions = schedules[key].functions
        kernel = next(key for key, function in functions.items() if key in present and function is not None)
        changed = mutation(functions[kernel], random)
        if changed is None or not _is_material(functions[kernel], changed, target):
            continue
        broken = msgspec.structs.replace(schedules[key], functions=functions | {kernel: changed})
        module, _ = network_compiler.with_schedules(fused, schedules | {key: broken})
        who = network_compiler.SideName("net", "tuned")
        network_compiler.write_build(path, module, source, compilation.target, who)
        return f"task {schedules[key].task}: {name}", path
    return None


# Ways to break a kernel -----------------------------------------------------------------------------------------------


def _one_of(function: Any, kind: Any, fits: Callable[[Any], bool], change: Callable[[Any], Any], random: Any) -> Any:
    """Returns the function with one node changed, drawn at random; None when none fits."""
    import tvm_ffi

    def walked(act: Callable[[int, Any], Any]) -> Any:
        seen = iter(range(10**9))
        return tvm_ffi.structural.structural_map(
            function.body, (kind, lambda node: act(next(seen), node) if fits(node) else node)
        )

    count: list[int] = []

    def note(number: int, node: Any) -> Any:
        count.append(number)
        return node

    walked(note)
    if not count:
        return None
    chosen = int(random.integers(len(count)))
    return function.with_body(walked(lambda number, node: change(node) if number == chosen else node))


def _ends_early(function: Any, random: Any) -> Any:
    from tvm import tirx

    def shorter(loop: Any) -> Any:
        return tirx.For(
            loop.loop_var, loop.min, loop.extent - 1, loop.kind, loop.body, loop.thread_binding, loop.annotations
        )

    return _one_of(
        function, tirx.For, lambda loop: isinstance(loop.extent, tirx.IntImm) and int(loop.extent) > 1, shorter, random
    )


def _does_not_accumulate(function: Any, random: Any) -> Any:
    from tvm import tirx

    def sums(store: Any) -> bool:
        value = store.value
        return (
            isinstance(value, tirx.Add)
            and getattr(value.a, "source", None) is not None
            and (value.a.source.same_as(store.buffer))
        )

    return _one_of(function, tirx.BufferStore, sums, lambda s: tirx.BufferStore(s.buffer, s.value.b, s.indices), random)


def _swaps(function: Any, random: Any) -> Any:
    from tvm import tirx

    def swapped(value: Any) -> Any:
        """Returns the expression with another operator; None where there is none of these."""
        if isinstance(value, tirx.Sub):
            return value.b - value.a
        if isinstance(value, tirx.Mul):
            return value.a + value.b
        if isinstance(value, tirx.Max):
            return tirx.min(value.a, value.b)
        if isinstance(value, tirx.Add):
            right = swapped(value.b)
            return None if right is None else value.a + right
        return None

    return _one_of(
        function,
        tirx.BufferStore,
        lambda store: swapped(store.value) is not None and _dtype(store.value).startswith("float"),
        lambda store: tirx.BufferStore(store.buffer, swapped(store.value), store.indices),
        random,
    )


def _dtype(node: Any) -> str:
    return str(node.ty.dtype if hasattr(node, "ty") else node.dtype)


def _changes_a_constant(function: Any, random: Any) -> Any:
    from tvm import tirx

    def other(constant: Any) -> Any:
        return tirx.FloatImm(_dtype(constant), float(constant.value) * 1.1 + 0.05)

    return _one_of(function, tirx.FloatImm, lambda c: abs(float(c.value)) < 1e30, other, random)


def _reads_beside(function: Any, random: Any) -> Any:
    import tvm
    from tvm import tirx

    inputs = list(function.params[:-1])

    def fits(load: Any) -> bool:
        return bool(load.indices) and any(load.source.same_as(one) for one in inputs)

    def beside(load: Any) -> Any:
        *first, last = load.indices
        return tirx.BufferLoad(load.source, [*first, tirx.max(last - 1, 0)])

    return _one_of(function, tvm.ir.TensorLoad, fits, beside, random)


MUTATIONS: list[tuple[str, Callable[[Any, Any], Any]]] = [
    ("a loop ends one step early", _ends_early),
    ("a sum is not accumulated", _does_not_accumulate),
    ("operands are swapped", _swaps),
    ("a constant is another", _changes_a_constant),
    ("an index is off by one", _reads_beside),
]


def _is_material(right: Any, wrong: Any, target: Any) -> bool:
    """Returns whether a broken kernel has other results than the correct one, on random inputs."""
    import tvm
    from tvm.s_tir.meta_schedule.arg_info import ArgInfo

    from autosched_tvm.compile import lowering

    results = []
    for function in (right, wrong):
        module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
        infos = ArgInfo.from_entry_func(module, remove_preproc=False)
        random = np.random.default_rng(0)
        arrays = []
        for info in infos:
            shape, dtype = tuple(int(d) for d in info.shape), str(info.dtype)
            is_float = np.dtype(dtype).kind == "f"
            arrays.append(random.standard_normal(shape).astype(dtype) if is_float else np.zeros(shape, dtype))
        tensors = [tvm.runtime.tensor(array) for array in arrays]
        try:
            library = tvm.tirx.build(module, target=target, pipeline=lowering.install())
            library["main"](*tensors)
        except Exception:  # a kernel that does not build breaks nothing
            return False
        results.append(np.nan_to_num(tensors[-1].numpy().astype("float64")))
    return bool(np.abs(results[0] - results[1]).max() > MATERIAL_SHARE * np.abs(results[0]).max())


if __name__ == "__main__":
    sys.exit(main())
