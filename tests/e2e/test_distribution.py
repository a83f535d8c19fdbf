"""The files of a release install into a new environment and work there. `make dist` does the same with dependencies
from the package index."""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

import autosched

pytest.importorskip("tvm")
ROOT = Path(__file__).parents[2]
LIMIT_S = 300.0


def run(*words: str | Path, folder: Path, **variables: str) -> str:
    """Returns the output of a program that succeeds, in a folder without sources."""
    known = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    ended = subprocess.run(
        list(map(str, words)), cwd=folder, env=known | variables, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an sdist and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, folder=folder)
    return folder


@pytest.mark.parametrize("suffix", [".whl", ".tar.gz"])
def test_a_release_installs_and_the_machine_passes(suffix: str, files: Path, tmp_path: Path) -> None:
    """The environment sees the packages that this one has, but for autosched, which is installed from sources here."""
    (file,) = files.glob(f"autosched-{autosched.__version__}*{suffix}")
    place = tmp_path / "env"
    venv.create(place, with_pip=False)
    python = place / "bin/python"
    (packages,) = (place / "lib").glob("python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = (sys.executable, "-m", "pip", "--python", python, "install")
    run(*pip, "--no-index", "--no-deps", "--no-build-isolation", file, folder=tmp_path)
    where = run(python, "-c", "import autosched, autosched_tvm; print(autosched.__file__)", folder=tmp_path)
    assert Path(where.strip()).is_relative_to(place)
    variables = {"XDG_STATE_HOME": str(tmp_path / "state"), "HOME": str(tmp_path)}
    said = run(place / "bin/autosched", "doctor", folder=tmp_path, **variables)
    assert "All is well" in said
    assert "backends: ansor, auto, autotvm, gcc, mock, tc" in said
    assert autosched.__version__ in run(place / "bin/autosched", "--version", folder=tmp_path)
    assert run(place / "bin/autosched", "install-systemd", "--help", folder=tmp_path)
