"""``python benchmarks/compiled.py benchmarks/seeds.py --seeds 800000`` runs a program on a compiled core and simulator.

mypyc compiles the same sources in a temporary folder, and the program runs 1.7 times as fast. First both play the same
seeds, and the program only runs if all their decisions are equal. Needs a C compiler.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCES = Path(__file__).parents[1] / "src"
MODULES = tuple(
    f"autosched/{name}.py"
    for name in (
        "core/estimates", "core/leases", "core/ranking", "core/remaining_work", "core/scheduler", "core/state",
        "core/policies/dispatching_rules", "core/policies/lookahead", "core/policies/policy",
        "core/policies/predictive", "core/policies/work_estimation", "sim/fault_model", "sim/random_testing",
        "sim/simulated_client", "sim/simulator",
    )
)  # fmt: skip
ALIKE = 400
"""Number of seeds that both play."""


def main() -> int:
    """Compiles, compares, runs."""
    if not sys.argv[1:]:
        sys.exit(__doc__)
    if shutil.which(os.environ.get("CC", "cc")) is None:
        sys.exit("there is no C compiler to make machine code with: install one, or run the program without this one")
    with tempfile.TemporaryDirectory(prefix="autosched-compiled-") as folder:
        compile_into(Path(folder))
        own = {**os.environ, "PYTHONPATH": folder}
        loaded = say(["-c", "import autosched.core.scheduler as it; print(it.__file__)"], own)
        if loaded.endswith(".py\n"):
            sys.exit(f"the compiled core is not the one that Python loads, which is {loaded}")
        played = ["-m", "autosched.sim", "--seeds", str(ALIKE)]
        was, is_ = say(played, dict(os.environ)), say(played, own)
        if was != is_:
            sys.exit(f"the compiled core decides otherwise, so it must not be used\nas it is: {was}\ncompiled: {is_}")
        return subprocess.call([sys.executable, *sys.argv[1:]], env=own)


def compile_into(folder: Path) -> None:
    """Copies the package, with compiled modules. Takes a minute."""
    shutil.copytree(SOURCES, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    how = {**os.environ, "MYPYC_OPT_LEVEL": "3", "MYPYC_DEBUG_LEVEL": "0"}
    made = subprocess.run(
        [Path(sys.executable).with_name("mypyc"), *MODULES], cwd=folder, env=how, capture_output=True, text=True
    )
    if made.returncode:
        sys.exit(f"{made.stdout}{made.stderr}\nmypyc could not make machine code of the core")


def say(arguments: list[str], env: dict[str, str]) -> str:
    """Returns the output of this interpreter."""
    return subprocess.check_output([sys.executable, *arguments], env=env, text=True)


if __name__ == "__main__":
    sys.exit(main())
