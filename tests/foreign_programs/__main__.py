"""Runs programs of others with the runtime in place of onnxruntime: `make programs`.

Each package of programs.toml is installed as it is, and copied with its imports of onnxruntime replaced; its models are
tuned by rule. Both must find the same. Prints a line for each program; exit code 1: one differs.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from autosched import user_folders

PROJECT = Path(__file__).resolve().parents[2]
CACHE = user_folders.cache() / "autosched" / "programs"
LIMIT_S = 600.0
ALONE = r"^([ \t]*import onnxruntime)[ \t]*$"
"""An import that names nothing else."""
IMPORT = r"^([ \t]*(?:import|from) )onnxruntime\b"
"""The beginning of an import."""
TOLERANCE = 1e-3
"""Maximum difference of two numbers, as a share of the larger one, or of 1 if that is smaller."""
PRINTED = """
import json, logging
from pathlib import Path
used = []
try:
    import autosched_runtime.session
    logging.getLogger("autosched_runtime").addHandler(logging.FileHandler("theirs.log"))
    first = autosched_runtime.session.InferenceSession.__init__
    def counted(self, *words, **named):
        first(self, *words, **named)
        used.append(self._network.path.name)
    autosched_runtime.session.InferenceSession.__init__ = counted
except ImportError:
    pass
CODE
Path("result.json").write_text(json.dumps({"result": result, "used": sorted(set(used))}, default=float))
"""


class Failed(Exception):
    """A program does not run, or finds something else; the text says why."""


def main() -> int:
    """Tries the programs."""
    parser = argparse.ArgumentParser(prog="python -m foreign_programs", description=__doc__)
    parser.add_argument("--only", default="", metavar="WORDS", help="programs whose packages match this expression")
    only = parser.parse_args().only
    programs = tomllib.loads(Path(__file__).with_name("programs.toml").read_text())["program"]
    failed = 0
    for program in (one for one in programs if re.search(only, one["package"])):
        try:
            print(f"same     {program['package']}: {compared(program)}", flush=True)
        except (Failed, subprocess.SubprocessError) as error:
            failed += 1
            print(f"DIFFERS  {program['package']}: {error}", flush=True)
    return bool(failed)


def compared(program: Mapping[str, Any]) -> str:
    """Returns what a program has found with both. Raises Failed."""
    folder = CACHE / program["package"].replace("==", "-")
    original, changed, networks = folder / "original", folder / "changed", folder / "networks"
    if not (folder / "installed").exists():
        shutil.rmtree(folder, ignore_errors=True)
        installed([program["package"], *program.get("with", ())], original)
        (folder / "installed").touch()
    shutil.rmtree(changed, ignore_errors=True)
    shutil.copytree(original, changed, symlinks=True)
    replaced(changed / package_folder(program))
    runtime = [str(PROJECT / "runtime"), *theirs()]
    for model, shapes in program["models"].items():
        tuned(original / model, shapes, networks)
    with tempfile.TemporaryDirectory(prefix="autosched-programs-") as place:
        wanted = printed(program["code"], Path(place) / "original", [str(original)], networks)
        found = printed(program["code"], Path(place) / "changed", [str(changed), *runtime], networks)
    lacking = {Path(model).stem for model in program["models"]} - {Path(name).stem for name in found["used"]}
    if lacking:
        raise Failed(f"these models were not run by the runtime: {', '.join(sorted(lacking))}")
    if differing := next(differences(wanted["result"], found["result"]), ""):
        raise Failed(differing)
    return f"{len(found['used'])} networks, {str(wanted['result'])[:90]}"


def theirs() -> list[str]:
    """Folders of what the runtime needs from this environment: TVM's libraries."""
    import tvm

    return [str(Path(tvm.__file__).parents[1])]


def package_folder(program: Mapping[str, Any]) -> str:
    """Returns the name of a package's folder."""
    return next(iter(program["models"])).partition("/")[0]


def installed(packages: list[str], folder: Path) -> None:
    """Installs packages, with what they need, into a folder."""
    folder.mkdir(parents=True)
    packages = [*packages, "onnxruntime", "setuptools<81"]  # some import pkg_resources, which newer ones lack
    words = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), *packages]
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode:
        raise Failed(f"it cannot be installed: {done.stderr.strip()[-300:]}")


def replaced(folder: Path) -> None:
    """Replaces the imports of onnxruntime in the sources of a folder."""
    for path in folder.rglob("*.py"):
        text = re.sub(ALONE, r"\1 as onnxruntime", path.read_text(), flags=re.MULTILINE)
        path.write_text(re.sub(IMPORT, r"\1autosched_runtime", text, flags=re.MULTILINE))


def tuned(model: Path, shapes: Mapping[str, list[int]], networks: Path) -> None:
    """Compiles a model by rule, unless that was done before."""
    if (networks / model.stem / f"{model.stem}.so").exists():
        return
    words = [
        sys.executable,
        "-m",
        "autosched",
        "tune",
        str(model),
        "--trials",
        "0",
        "--output",
        str(networks / model.stem),
    ]
    for name, sizes in shapes.items():
        words += ["--shape", f"{name}={','.join(map(str, sizes))}"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise Failed(f"{model.name} cannot be tuned: {(done.stdout + done.stderr).strip()[-300:]}")


def printed(code: str, place: Path, folders: list[str], networks: Path) -> dict[str, Any]:
    """Returns what a program prints that finds its packages in these folders."""
    place.mkdir()
    variables = {
        "PATH": os.environ["PATH"], "HOME": str(place), "PYTHONPATH": os.pathsep.join(folders),
        "AUTOSCHED_NETWORKS": str(networks), "PYTHONSAFEPATH": "1", "NUMBA_CACHE_DIR": str(place),
    }  # fmt: skip
    words = [sys.executable, "-S", "-c", PRINTED.replace("CODE", code)]
    done = subprocess.run(words, cwd=place, env=variables, capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode:
        raise Failed(done.stderr.strip()[-600:])
    answer: dict[str, Any] = json.loads((place / "result.json").read_text())
    return answer


def differences(one: Any, other: Any, where: str = "result") -> Iterator[str]:
    """Yields where two results differ."""
    if isinstance(one, float | int) and isinstance(other, float | int):
        if abs(one - other) > TOLERANCE * max(1.0, abs(one), abs(other)):
            yield f"{where} is {one}, and {other} with the runtime"
    elif isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        for name in one:
            yield from differences(one[name], other[name], f"{where}.{name}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from differences(left, right, f"{where}[{number}]")
    elif one != other:
        yield f"{where} is {str(one)[:90]}, and {str(other)[:90]} with the runtime"


if __name__ == "__main__":
    sys.exit(main())
