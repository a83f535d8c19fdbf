"""Inputs with NaN and infinities: a build that gives numbers for them is noted."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autosched_tvm.evaluation import isolated_run, special_values
from autosched_tvm.tensors import Array

INPUTS = {"x": np.ones((2, 5), "float32"), "ids": np.arange(3)}
Engine = Callable[[Any], Sequence[Array]]


def note(monkeypatch: pytest.MonkeyPatch, build: Engine, reference: Engine) -> str:
    monkeypatch.setattr(isolated_run, "outputs", lambda _build, samples: [list(build(one)) for one in samples])
    return special_values.note(Path("net"), INPUTS, reference, ["y"])


def same(inputs: Any) -> Sequence[Array]:
    return [inputs["x"] * 2]


def clipped(inputs: Any) -> Sequence[Array]:
    return [np.clip(np.nan_to_num(inputs["x"]), 0, 6) * 2]


def test_a_build_that_keeps_them_is_not_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert note(monkeypatch, same, same) == ""


def test_a_build_that_drops_them_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    said = note(monkeypatch, clipped, same)
    assert "with NaN in the inputs, 3 of 10 values of 'y'" in said
    assert "with infinities in the inputs, 6 of 10 values of 'y'" in said
    assert "docs/limits.md" in said


def test_a_build_that_crashes_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(_inputs: Any) -> Sequence[Array]:
        raise isolated_run.Crashed("it was ended by SIGSEGV")

    assert "not allowed: it was ended by SIGSEGV" in note(monkeypatch, crash, same)


def test_a_reference_that_refuses_them_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_inputs: Any) -> Sequence[Array]:
        raise ValueError("no NaN")

    assert note(monkeypatch, clipped, refuse) == ""


def test_whole_numbers_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(INPUTS, "x", np.arange(4))
    assert note(monkeypatch, same, same) == ""
