"""The program that runs ONNX Runtime on a board, in a folder of this machine instead."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import numpy as np
import onnx

from autosched_tvm.evaluation import board_program
from autosched_tvm.evaluation.board_rival import BoardEngineError, BoardOnnxRuntime
from nets import small_net

INPUTS = {"x": np.ones((1, 3, 12, 12), "float32")}


class Session:
    """A session with a board whose folder is on this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, name: str, content: bytes) -> None:
        (self._folder / name).write_bytes(content)

    def read(self, name: str) -> bytes:
        return (self._folder / name).read_bytes()

    def run_python(self, program: str) -> None:
        exec(compile(program, "program", "exec"), {"__name__": "autosched_board"})


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.chdir(tmp_path)
    onnx.save(small_net(), tmp_path / "net.onnx")
    yield Session(tmp_path)
    for child in sys.__dict__.pop("_autosched_children", {}).values():
        os.kill(child.pid, 9)
        os.waitpid(child.pid, 0)


def test_the_program_runs_and_times_a_model_in_a_separate_process(session: Any) -> None:
    engine = BoardOnnxRuntime(session, Path("net.onnx"), 1)
    assert engine.version.endswith(" on the board")
    (output,) = engine.run(INPUTS)
    assert output.shape == (1, 5)
    engine.bind(INPUTS)
    assert 0 < engine.sample(3, 1) < 10
    (child,) = sys.__dict__["_autosched_children"].values()
    assert child.pid != os.getpid()
    engine.end()
    assert not sys.__dict__["_autosched_children"]
    os.waitpid(child.pid, 0)


def test_two_engines_have_separate_processes(session: Any) -> None:
    one, other = (BoardOnnxRuntime(session, Path("net.onnx"), 1) for _ in range(2))
    np.testing.assert_allclose(one.run(INPUTS)[0], other.run(INPUTS)[0])
    assert len(sys.__dict__["_autosched_children"]) == 2


def test_a_model_that_the_engine_cannot_run_is_refused_with_the_reason(session: Any) -> None:
    Path("bad.onnx").write_bytes(b"no model")
    with pytest.raises(BoardEngineError, match=r"bad|model|protobuf"):
        BoardOnnxRuntime(session, Path("bad.onnx"), 1)


def test_a_crash_of_the_engine_is_reported_and_leaves_the_session_usable(session: Any) -> None:
    engine = BoardOnnxRuntime(session, Path("net.onnx"), 1)
    (child,) = sys.__dict__["_autosched_children"].values()
    os.kill(child.pid, 9)
    with pytest.raises(BoardEngineError, match=r"crashed|has ended"):
        engine.run(INPUTS)


def test_an_engine_that_hangs_is_killed_in_time(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = BoardOnnxRuntime(session, Path("net.onnx"), 1)
    engine.bind(INPUTS)
    monkeypatch.setattr("autosched_tvm.evaluation.board_rival.LIMIT_S", 0.05)
    with pytest.raises(BoardEngineError, match=r"no answer within 0 s"):
        engine.sample(10**8, 0)


def test_the_program_imports_nothing_of_autosched() -> None:
    text = Path(board_program.__file__).read_text()
    assert "autosched_tvm" not in text
    assert "from autosched" not in text
