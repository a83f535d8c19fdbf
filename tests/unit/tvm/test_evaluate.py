import sys
from pathlib import Path

import pytest

from autosched.backend import Timing
from autosched.tvm import evaluate
from autosched.tvm.evaluate import Contestant, _runtime, published, race


def test_the_race_is_interleaved_and_slow_builds_run_the_least(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "ROUNDS_MAX", 5)
    log = []

    def contestant(name: str, once_s: float, known_s: float = 0.0) -> Contestant:
        def sample(_number: int) -> float:
            log.append(name)
            return once_s

        return Contestant(name, sample, once_s=known_s)

    timings = race([contestant("slow", 9.0, known_s=9.0), contestant("fast", 1e-3)], budget_s=60.0)
    assert [len(t.samples_s) for t in timings] == [evaluate.ROUNDS_MIN, 5]
    assert log == ["fast", "fast"] + ["slow", "fast"] * 3 + ["fast"] * 2


def test_a_slow_build_costs_the_others_no_rounds() -> None:
    slow, fast = Contestant("slow", lambda _number: 0.5), Contestant("fast", lambda _number: 1e-3)
    timings = race([slow, fast], budget_s=4.0)
    assert [len(t.samples_s) for t in timings] == [4, evaluate.ROUNDS_MAX]


def test_without_time_each_is_still_measured_three_times() -> None:
    timings = race([Contestant("only", lambda _number: 0.5)], budget_s=0.0)
    assert len(timings[0].samples_s) == 3


def timing(name: str, median_s: float) -> Timing:
    return Timing(name, (median_s,) * 3, median_s, median_s, median_s)


@pytest.mark.parametrize(
    ("tuned_s", "right", "choice", "words"),
    [
        (1.0, True, "tuned", ""),
        (3.0, True, "default", "not make the network faster"),
        (1.0, False, "default", "something else"),
    ],
)
def test_only_what_is_faster_and_right_is_published(tuned_s: float, right: bool, choice: str, words: str) -> None:
    notes: list[str] = []
    assert published([timing("default", 2.0), timing("tuned", tuned_s)], tuned_right=right, notes=notes) == choice
    assert words in " ".join(notes)


def test_without_onnx_runtime_there_is_no_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert _runtime(Path("net.onnx"), 1, {}) == "ONNX Runtime is not installed"


def test_a_model_that_onnx_runtime_refuses_is_no_reference(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    (tmp_path / "net.onnx").write_bytes(b"no model")
    assert str(_runtime(tmp_path / "net.onnx", 1, {})).startswith("ONNX Runtime cannot run the model: ")


def test_a_runtime_that_fails_without_a_word_is_noted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(evaluate, "Runtime", fail)
    assert _runtime(tmp_path, 1, {}) == "ONNX Runtime cannot run the model: MemoryError"
