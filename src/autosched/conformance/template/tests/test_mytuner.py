"""Checks the interface of the backend, and its own behaviour."""

from pathlib import Path

from autosched_backend_mytuner import MytunerBackend, Options, add

from autosched.conformance import BackendContract
from autosched.simple import Job


class TestMytuner(BackendContract):
    """Some 40 checks; each failure says what to do."""

    backend = MytunerBackend
    options = {"repeat": 1}
    rounds = 6


def test_every_choice_adds_up() -> None:
    """The toy's own test."""
    assert {add(range(100), block, quick) for block in (1, 7, 1000) for quick in (False, True)} == {4950}


def test_a_model_has_a_task_for_each_size(tmp_path: Path) -> None:
    """The spaces of a model."""
    model = tmp_path / "model.json"
    model.write_text('{"a": 10}')
    (space,) = MytunerBackend().spaces(Job(name="model", model=model, options=Options()))
    assert (space.name, space.shape) == ("a", "10 numbers")
