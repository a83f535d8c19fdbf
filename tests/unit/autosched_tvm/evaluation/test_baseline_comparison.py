"""The baseline of models of all formats, and builds that are measured against it during the search."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from autosched.backend import RIVALS
from autosched.records.statistics import summarize
from autosched_tvm.evaluation import baseline_comparison
from autosched_tvm.evaluation.engine_benchmark import EngineBenchmark, EngineProcess, Rival
from autosched_tvm.tensors import Array
from autosched_tvm.worker_messages import AS_IT_IS, Form

FORM = [Form(AS_IT_IS, "net.tflite", "litert")]


class Engine:
    """An engine with one latency."""

    def __init__(self, name: str, latency_s: float) -> None:
        self.name, self.latency_s = name, latency_s

    def sample(self, number: int, warm: int = 0) -> float:
        return self.latency_s

    def bind(self, inputs: Mapping[str, Array]) -> None:
        return

    def operators(self, budget_s: float) -> None:
        return None


class Arena:
    """Replaces a contest: a build of 2 ms, and a rival."""

    board = ""

    left_s, cores = 100.0, (1,)

    @property
    def is_remote(self) -> bool:
        return bool(self.board)

    def __init__(self, rival: Rival | str) -> None:
        self._rival = rival

    def module(self, name: str, path: Path) -> tuple[Any, None]:
        return Engine(name, 2e-3), None

    def rival(self, forms: Sequence[Form], inputs: Mapping[str, Array]) -> Rival | str:
        assert forms == FORM
        return self._rival


def against(engine: str, latency_s: float) -> EngineBenchmark:
    timing = summarize(AS_IT_IS, [latency_s] * 5)
    contestant = cast(EngineProcess, Engine(engine, latency_s))
    return cast(EngineBenchmark, Arena(Rival(contestant, AS_IT_IS, "9.9", [], (timing,))))


@pytest.mark.parametrize("engine", RIVALS)
def test_the_baseline_is_named_after_the_engine_that_ran_it(engine: str) -> None:
    found = baseline_comparison.baseline(against(engine, 3e-3), FORM, {"x": np.zeros(1)})
    assert not isinstance(found, str)
    assert (found.runtime, found.version, found.form, found.median_s) == (RIVALS[engine], "9.9", AS_IT_IS, 3e-3)


def test_an_engine_that_cannot_run_the_model_is_no_baseline() -> None:
    contest = cast(EngineBenchmark, Arena("LiteRT is not installed"))
    assert baseline_comparison.baseline(contest, FORM, {}) == "LiteRT is not installed"


@pytest.mark.parametrize(("engine", "rival_s", "published"), [("litert", 3e-3, "tuned"), ("pytorch", 1e-3, "")])
def test_a_build_is_measured_against_the_engine_of_its_file(engine: str, rival_s: float, published: str) -> None:
    found = baseline_comparison.measured(against(engine, rival_s), Path("tuned"), FORM, {})
    assert found.published == published
    assert {timing.name for timing in found.timings} == {"tuned", engine}
    assert found.reference == f"{RIVALS[engine]} 9.9"
    assert all(RIVALS[engine] in note for note in found.notes)


@pytest.mark.parametrize("rival_s", [1e-3, 3e-3])
def test_the_result_of_a_board_names_what_was_not_monitored(rival_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Arena, "board", "board0")
    found = baseline_comparison.measured(against("onnxruntime", rival_s), Path("tuned"), FORM, {})
    assert found.notes[0].startswith("the clock of board0 cannot be read")
