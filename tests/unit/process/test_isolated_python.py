"""Programs of this project are not changed by the user's folder and environment."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from autosched.process import isolated_python

NAMES = ("queue", "token", "calendar", "onnx", "numpy", "tvm", "autosched")
DEADLINE_S = 60.0


def told(folder: Path, environment: dict[str, str]) -> dict[str, str]:
    """Where a program finds its modules."""
    (folder / "packages").mkdir()
    (folder / "packages/told.py").write_text(
        "import json, sys, msgspec, queue, calendar\n"
        "json.dump({m.__name__: m.__file__ for m in (msgspec, queue, calendar)}, sys.stdout)\n"
    )
    places = [str(folder / "packages"), environment.pop("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, places))
    ended = subprocess.run(
        isolated_python.command("told"), cwd=folder, env=environment, capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert ended.returncode == 0, ended.stderr
    found: dict[str, str] = json.loads(ended.stdout)
    return found


def test_files_in_the_current_folder_are_not_imported(tmp_path: Path) -> None:
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the file of the user was executed')")
    assert str(tmp_path) not in "".join(told(tmp_path, isolated_python.environment()).values())


@pytest.mark.parametrize("name", ["msgspec", "queue", "calendar"])
def test_pythonpath_adds_packages_and_replaces_none(tmp_path: Path, name: str) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / f"old/{name}.py").write_text("raise SystemExit('a package of PYTHONPATH was executed')")
    found = told(tmp_path, isolated_python.environment({"PYTHONPATH": str(tmp_path / "old")}))
    assert str(tmp_path) not in found[name]


def test_interpreters_that_python_starts_do_not_see_pythonpath(tmp_path: Path) -> None:
    (tmp_path / "asks.py").write_text(
        "import json, os, sys\nfrom autosched.process import isolated_python\n"
        "json.dump([os.environ.get('PYTHONPATH'), isolated_python.environment()['AUTOSCHED_PYTHONPATH'], sys.path[-1]],"
        " sys.stdout)\n"
    )
    environment = isolated_python.environment({"PYTHONPATH": str(tmp_path)})
    command = isolated_python.command("asks")
    ended = subprocess.run(command, env=environment, capture_output=True, check=True, timeout=DEADLINE_S)
    assert json.loads(ended.stdout) == [None, str(tmp_path), str(tmp_path)]


def test_the_environment_is_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTHONHOME", "PYTHONSTARTUP", "PYTHONWARNINGS", "OMP_NUM_THREADS", "MALLOC_CHECK_", "SECRET"):
        monkeypatch.setenv(name, "x")
    for name in ("LC_ALL", "AUTOSCHED_CACHE", "PATH", "PGPASSFILE", "LD_LIBRARY_PATH"):
        monkeypatch.setenv(name, "y")
    found = isolated_python.environment({"MORE": "z"})
    assert "x" not in found.values()
    assert (found["LC_ALL"], found["AUTOSCHED_CACHE"], found["PGPASSFILE"], found["MORE"]) == ("y", "y", "y", "z")


def test_words_and_exit_code_are_passed_on(tmp_path: Path) -> None:
    (tmp_path / "ends.py").write_text("import sys\nif __name__ == '__main__': sys.exit(int(sys.argv[1]))\n")
    environment = isolated_python.environment({"PYTHONPATH": str(tmp_path)})
    ended = subprocess.run(isolated_python.command("ends", "7"), env=environment, timeout=DEADLINE_S)
    assert ended.returncode == 7
    assert isolated_python.command("ends")[0] == sys.executable
