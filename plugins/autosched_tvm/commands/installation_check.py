"""``python -m autosched_tvm.commands.installation_check [TARGET]``: checks that TVM can tune here, or that it can build
for a target. Prints facts as JSON.

TVM may crash this process. Each check is written to the standard error before it begins, so that the last line shows
where the process died.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from autosched import user_folders
from autosched.errors import RequestError
from autosched_tvm.compile import toolchain
from autosched_tvm.compile.toolchain import INSTALL
from autosched_tvm.granted_features import granted

SIZE = 64
"""Rows and columns of the matrices of the checked kernel: several of the widest vectors."""


class Problem(Exception):
    """A failed check: the problem, then the fix."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(what)
        self.fix = fix


def main(words: Sequence[str] = ()) -> int:
    """Run all checks, or those of a target; returns 0 if all pass."""
    findings: list[dict[str, str]] = []
    probes: dict[str, Callable[[], str]] = dict(PROBES)
    if words:
        probes = {**COMMON, **{name: partial(probe, words[0]) for name, probe in FOR.items()}}
    for name, probe in probes.items():
        print(f"trying: {name}", file=sys.stderr, flush=True)
        try:
            findings.append({"state": "ok", "what": f"TVM, {name}: {probe()}"})
        except Problem as problem:
            findings.append({"state": "broken", "what": f"TVM, {name}: {problem}", "fix": problem.fix})
        except Exception as error:  # any exception is the finding
            what = f"TVM, {name}: {type(error).__name__}: {_last_line(error)}"
            findings.append({"state": "broken", "what": what, "fix": f"reinstall: {INSTALL}"})
        if findings[-1]["state"] != "ok" and name in NEEDED:
            break
    fine = all(finding["state"] == "ok" for finding in findings)
    print(json.dumps({"ok": fine, "findings": findings}))
    return 0 if fine else 1


def packages() -> str:
    """Check that the TVM packages have matching versions."""
    try:
        return toolchain.check_packages()
    except RequestError as error:
        what, _, fix = str(error).rpartition(": ")
        raise Problem(what, fix) from None


def boosters() -> str:
    """Check that xgboost and xgboost-cpu are not both installed: they overwrite each other."""
    found = {}
    for package in ("xgboost", "xgboost-cpu"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    if len(found) == 2:
        raise Problem("xgboost and xgboost-cpu are both installed and overwrite each other",
                      "pip uninstall -y xgboost xgboost-cpu && pip install xgboost-cpu")  # fmt: skip
    if not found:
        raise Problem("xgboost is not installed; the cost model needs it", INSTALL)
    import xgboost

    xgboost.DMatrix([[0.0]])
    return ", ".join(f"{package} {number}" for package, number in found.items())


def importing() -> str:
    """Check that TVM can be imported."""
    import tvm

    from autosched_tvm.compile import intrinsics

    intrinsics.install()
    return f"TVM {tvm.__version__}, LLVM {tvm.target.codegen.llvm_version_major()}"


def onnx_tools() -> str:
    """Check the two packages that read models."""
    try:
        import onnx
        import onnxsim  # noqa: F401
    except ImportError as error:
        raise Problem(f"{error.name} is not installed", INSTALL) from None
    return f"onnx {onnx.__version__}, onnxsim {version('onnxsim')}"


def target(text: str = "auto") -> str:
    """Check that LLVM knows the target: this CPU, if no other is requested."""
    from autosched_tvm.compile import targets

    try:
        wanted = targets.resolve(text, 1)
        withheld = (
            targets.withheld(json.dumps({**json.loads(wanted), "mattr": []}), granted()) if text == "auto" else []
        )
        return wanted + (f" (this machine withholds {targets.listed(withheld)})" if withheld else "")
    except RequestError as error:
        raise Problem(str(error), "name the processor and its machine, as in etc/autosched.toml") from None


def linker(text: str = "auto") -> str:
    """Check that kernels and networks can be linked to shared libraries."""
    from autosched_tvm.compile import targets

    try:
        return " ".join(toolchain.linker(targets.triple_of(targets.resolve(text, 1))))
    except RequestError as error:
        fix = "on Debian: apt-get install gcc libc6-dev" if text == "auto" else "on Debian: apt-get install lld"
        raise Problem(str(error), fix) from None


def search() -> str:
    """Check a search, which crashes with mismatched TVM packages."""
    from tvm.s_tir import meta_schedule as ms

    from autosched_tvm.compile.candidate_build import load_target
    from autosched_tvm.compile.targets import resolve

    context = ms.TuneContext(
        mod=_workload(), target=load_target(resolve("auto", 1)), space_generator="post-order-apply", rand_state=1,
        num_threads=1, search_strategy=ms.SearchStrategy.create(
            "evolutionary", population_size=4, init_min_unmeasured=1, genetic_num_iters=1
        ),
    )  # fmt: skip
    context.pre_tuning(
        4, 2, context.generate_design_space(), ms.database.MemoryDatabase(), ms.cost_model.RandomModel(seed=1)
    )
    candidates = context.generate_measure_candidates()
    if not candidates:
        raise Problem("the search proposes no candidates", f"reinstall: {INSTALL}")
    return f"{len(candidates)} candidates proposed"


def kernel(text: str = "auto") -> str:
    """Check that a kernel can be compiled and linked; for this machine also that it runs and is correct."""
    import numpy as np
    import tvm

    from autosched_tvm.compile import candidate_build, task_extraction
    from autosched_tvm.compile.targets import resolve, triple_of

    wanted = resolve(text, 1)
    with tempfile.TemporaryDirectory(dir=user_folders.temporary()) as folder:
        task, library = Path(folder) / "task.json", Path(folder) / "kernel.so"
        task_extraction.save(_workload(), task)
        candidate_build.build_by_rule(str(task), wanted, str(library))  # with the widest vectors of the target
        if text != "auto":
            return f"compiled and linked for {triple_of(wanted) or 'this processor'}, not run"
        left, right = (np.arange(SIZE**2, dtype="float32").reshape(SIZE, SIZE) % 8 + i for i in range(2))
        product = tvm.runtime.tensor(np.zeros((SIZE, SIZE), "float32"))
        tvm.runtime.load_module(str(library))["main"](tvm.runtime.tensor(left), tvm.runtime.tensor(right), product)
        # not by NumPy's BLAS, which on a machine that withholds features may end the process itself
        if not np.allclose(product.numpy(), np.einsum("ik,kj->ij", left, right)):
            raise Problem("a compiled kernel computes wrong numbers", "try another target, for example: x86-64-v2")
    return "compiled, linked, run, right"


def _workload() -> Any:
    """A matrix product."""
    import tvm
    from tvm import te

    left, right = (te.placeholder((SIZE, SIZE), name=name) for name in ("left", "right"))
    k = te.reduce_axis((0, SIZE), name="k")
    product = te.compute((SIZE, SIZE), lambda i, j: te.sum(left[i, k] * right[k, j], axis=k), name="product")
    function = te.create_prim_func([left, right, product]).with_attr("global_symbol", "main")
    return tvm.IRModule({"main": function})


def _last_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else ""


COMMON: dict[str, Callable[[], str]] = {"packages": packages, "import": importing}
FOR: dict[str, Callable[[str], str]] = {"target": target, "linker": linker, "kernel": kernel}
"""Checks of a target."""
PROBES: dict[str, Callable[[], str]] = {
    **COMMON,
    "xgboost": boosters,
    "onnx": onnx_tools,
    "target": target,
    "linker": linker,
    "kernel": kernel,
    "search": search,
}
NEEDED = frozenset({"packages", "import", "target", "linker"})
"""Checks without which the others mean nothing."""

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
