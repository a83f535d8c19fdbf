"""Runs a build of a network in its own process, so that a crash of the build is a result like others.

``python -m autosched_tvm.evaluation.isolated_run BUILD FOLDER`` reads FOLDER/inputs-0.npz and so on, and writes
FOLDER/outputs-0.npz and so on.
"""

import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from autosched.process import isolated_python
from autosched_tvm.tensors import Array

LIMIT_S = 120.0
"""Maximum time for loading a build and running all samples, in seconds."""


class Crashed(Exception):
    """The build ended its process, or did not end in time."""


def outputs(
    build: Path, samples: Sequence[Mapping[str, Array]], program: str = "autosched_tvm.evaluation.isolated_run"
) -> list[list[Array]]:
    """Returns the outputs of a build for each sample. `program`: the module that runs the file, with `answer_all`.
    Raises Crashed."""
    with tempfile.TemporaryDirectory(prefix="autosched-apart-") as folder:
        for number, inputs in enumerate(samples):
            np.savez(Path(folder) / f"inputs-{number}.npz", **inputs)  # type: ignore[arg-type]
        command = isolated_python.command(program, str(build), folder)
        try:
            ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            raise Crashed(f"it ran for more than {LIMIT_S:.0f} s") from None
        if ended.returncode:
            raise Crashed(reason(ended))
        return [_read(Path(folder) / f"outputs-{number}.npz") for number in range(len(samples))]


def reason(ended: "subprocess.CompletedProcess[str]") -> str:
    """Returns why a process failed, in words."""
    if ended.returncode < 0:
        return f"it was ended by {signal.Signals(-ended.returncode).name}"
    last = ended.stderr.strip().splitlines()[-1:]
    return f"it failed: {''.join(last)[:300]}"


def _read(path: Path) -> list[Array]:
    with np.load(path) as file:
        return [file[f"arr_{number}"] for number in range(len(file.files))]


def answer_all(folder: Path, run: Callable[[dict[str, Array]], Sequence[Array]]) -> None:
    """Runs all samples of the folder, and writes their outputs there."""
    for path in sorted(folder.glob("inputs-*.npz")):
        with np.load(path) as file:
            np.savez(path.with_name(path.name.replace("inputs", "outputs")), *run(dict(file)))


def main(build: str, folder: str) -> None:
    """Runs the build on all samples of the folder."""
    from autosched_tvm.device.loaded_module import LoadedModule

    answer_all(Path(folder), LoadedModule(Path(build)).run)


if __name__ == "__main__":
    main(*sys.argv[1:])
