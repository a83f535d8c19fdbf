"""A backend without TVM and without a network: the daemon tunes C programs."""

import json
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from autosched.report import Report
from autosched_backend_gcc import GccBackend
from deadlines import DEADLINE_S
from integration.lab import command_line, lab

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
STENCIL = Path(GccBackend.example or "").with_name("stencil.c")


def test_programs_are_tuned_beside_another_job_and_compared_with_their_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with lab(tmp_path) as there:
        command = command_line(there, home, monkeypatch, capsys)
        other = there.submit(trials=16, tasks=2)
        code, out, err = command("tune", STENCIL, "--backend", "gcc", "--trials", 16, "--option", "repeat=3")
        assert code == 0, err
        assert "outputs equal to the default choice" in out
        assert there.wait(other).state == "done"
    folder = home / "stencil-tuned"
    report = msgspec.json.decode((folder / "report.json").read_bytes(), type=Report)
    assert report.evaluation is not None
    default, tuned = report.evaluation.timings
    assert (default.name, tuned.name, report.evaluation.outputs_equal) == ("default", "tuned", True)
    assert len((folder / "records.jsonl").read_text().splitlines()) >= 16
    left = json.loads((folder / "stencil.json").read_text())
    assert left["command"].startswith("gcc -O")
    assert left["choice"].keys() >= {"TILE_I", "TILE_J", "level"}
    subprocess.run(left["command"], shell=True, check=True, cwd=folder, timeout=DEADLINE_S)
    ran = subprocess.run([folder / "stencil", "2"], capture_output=True, text=True, check=True, timeout=DEADLINE_S)
    assert ran.stdout.splitlines()[-1].startswith("output ")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("empty.c", "// nothing\n", "empty.c has no main(), so it is no C program"),
        ("words.c", "// knob TILE: large\nint main(void) {}\n", "the values of knob TILE must be whole numbers"),
        ("broken.c", "int main(void) { nonsense; }\n", "without any tuning already, build of broken with"),
        ("crash.c", "int main(void) { __builtin_trap(); }\n", "measure of crash with"),
    ],
)
def test_a_file_that_is_no_program_to_tune_is_refused_by_its_name(
    name: str, text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    with lab(tmp_path) as there:
        command = command_line(there, tmp_path, monkeypatch, capsys)
        (tmp_path / name).write_text(text)
        code, _, err = command("tune", name, "--backend", "gcc", "--trials", 4)
    assert code == 6
    assert said in err
