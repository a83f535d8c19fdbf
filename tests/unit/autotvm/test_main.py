"""Prints the spaces of a model's tasks."""

from pathlib import Path

import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("tvm")
pytestmark = pytest.mark.tvm

from autosched_backend_autotvm.__main__ import main  # noqa: E402
from nets import conv_net  # noqa: E402


@pytest.fixture
def model(tmp_path: Path) -> str:
    onnx.save(conv_net(), tmp_path / "net.onnx")
    return str(tmp_path / "net.onnx")


def test_each_task_has_its_knobs(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([model]) == 0
    said = capsys.readouterr().out
    assert "template conv2d_nchwc.llvm: " in said
    assert "tile_w" in said


def test_a_restricted_knob_is_marked(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([model, "--knobs", '{"outer": ["oc h w"]}']) == 0
    (line,) = {line for line in capsys.readouterr().out.splitlines() if line.startswith("  outer")}
    assert line.split()[1:] == ["1:", "oc", "h", "w"]


def test_invalid_json_is_reported(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([model, "--knobs", "{outer"]) == 1
    assert "option knobs" in capsys.readouterr().err
