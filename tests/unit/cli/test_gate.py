"""`autosched gate`: equal code is as fast, and slower networks are found."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tvm")

from autosched.backend import Timing
from autosched.cli import gate
from autosched.cli.command_table import run
from autosched.errors import NotFound
from autosched.export import Form, export
from deadlines import DEADLINE_S
from unit.autosched_runtime.small_networks import of_weights
from unit.export.packed import tuned

pytestmark = pytest.mark.tvm
SHORT = ("--seconds", "0.5")


def network(folder: Path, megabytes: int) -> Path:
    folder.mkdir()
    return of_weights(folder / "net.so", megabytes).parent


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return network(tmp_path_factory.mktemp("gate") / "light", 1)


@pytest.fixture(scope="module")
def heavy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return network(tmp_path_factory.mktemp("gate") / "heavy", 16)


def test_equal_code_is_not_measured(light: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = network(tmp_path / "other", 1)
    assert run(["gate", str(light), "--against", str(other), "--save", str(tmp_path / "kept")]) == 0
    assert "the code is equal, and nothing was measured" in capsys.readouterr().out
    assert (tmp_path / "kept/net.so").is_file()


def test_other_weights_are_not_other_code(light: Path, tmp_path: Path) -> None:
    for suffix in (".so", ".json"):
        shutil.copy(light / f"net{suffix}", tmp_path)
    content = bytearray((tmp_path / "net.so").read_bytes())
    content[-4:] = b"abcd"
    (tmp_path / "net.so").write_bytes(content)
    assert gate.codes(light / "net.so") == gate.codes(tmp_path / "net.so")
    assert gate.codes(export([light / "net.so"], Form.FILE, tmp_path / "net.asn")) == gate.codes(light / "net.so")


def test_a_slower_network_is_red_and_a_faster_one_is_not(
    light: Path, heavy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["gate", str(heavy), "--against", str(light), "--save", str(tmp_path / "kept"), *SHORT]) == 1
    said = capsys.readouterr()
    assert "SLOWER than allowed (1.02), in each of 2 measurements" in said.out
    assert "measured once more" in said.err
    assert not (tmp_path / "kept").exists()
    assert run(["gate", str(light / "net.so"), "--against", str(heavy), *SHORT, "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)["gate"]
    assert (told["slower"], told["equal_code"], told["measured"]) == (False, False, 1)
    assert told["ratios"]["'x' (float32 64)"]["median_s"] < 0.9


@pytest.mark.parametrize(
    ("measurements", "slower", "count"),
    [
        ([(1.0, 1.01)], False, 1),
        ([(0.9, 1.5)], False, 1),
        ([(1.03, 1.2), (0.99, 1.05)], False, 2),
        ([(1.03, 1.2), (1.03, 1.05)], True, 2),
    ],
)
def test_it_is_red_only_if_the_interval_lies_above_the_bound_twice(
    measurements: list[tuple[float, float]], slower: bool, count: int, light: Path, heavy: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    given = iter(measurements)

    def measured(*_words: Any) -> dict[str, Timing]:
        low, high = next(given)
        return {"x": Timing("ratio", (low, high), (low + high) / 2, low, high)}

    monkeypatch.setattr(gate, "_measured", measured)
    assert run(["gate", str(light), "--against", str(heavy), "-o", "json"]) == (1 if slower else 0)
    assert json.loads(capsys.readouterr().out)["gate"]["measured"] == count


def test_references_that_are_not_there_are_told(
    light: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["gate", str(light), "--against", "main"]) == 4
    assert "A revision of git is for a model" in capsys.readouterr().err
    assert run(["gate", str(tmp_path / "none.onnx"), "--against", str(light)]) == 2
    packed = export([light / "net.so"], Form.FILE, tmp_path / "net.asn")
    assert run(["gate", str(packed), "--against", str(light)]) == 2
    assert "name the folder that it was packed from" in capsys.readouterr().err


def test_networks_of_other_inputs_are_refused(light: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tuned(tmp_path, rows=2)
    assert run(["gate", str(light), "--against", str(other), *SHORT]) == 2
    assert "these networks take different inputs: 'x' (float32 64); 'x' (float32 2x64)" in capsys.readouterr().err


def test_the_model_of_a_revision_is_found(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
        subprocess.run(["git", "-C", tmp_path, *who, *words], check=True, capture_output=True, timeout=DEADLINE_S)

    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    (tmp_path / "models").mkdir()
    model = tmp_path / "models/net.onnx"
    git("init", "-q")
    for content in (b"first", b"second"):
        model.write_bytes(content)
        git("add", ".")
        git("commit", "-qm", "a model")
    assert gate._of_revision("HEAD~1", model, tmp_path / "old").read_bytes() == b"first"
    for wrong in ("none", "--help", "HEAD~9"):
        with pytest.raises(NotFound, match=f"neither a network {wrong} nor a revision of net.onnx"):
            gate._of_revision(wrong, model, tmp_path / wrong)
