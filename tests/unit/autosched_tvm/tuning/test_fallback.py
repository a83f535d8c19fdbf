"""A task that a method cannot tune goes to another one, with a note."""

from collections.abc import Iterable
from typing import Any

import pytest

from autosched.backend import NoteGroup
from autosched.errors import RequestError
from autosched_tvm.tuning.fallback import Fallback
from autosched_tvm.tuning.search_method import Unsupported
from unit.autosched_tvm.methods import FakeMethod, FakeSearch, site


def test_a_task_of_the_first_method_never_creates_the_second() -> None:
    def never() -> FakeMethod:
        raise AssertionError("made without need")

    first = FakeSearch("a")
    method = Fallback(FakeMethod(first, ["conv"], ["a note"]), "other", never)
    assert method.search(site("conv")) is first
    assert list(method.notes) == ["a note"]


def test_a_task_the_first_method_cannot_tune_goes_to_the_second_and_is_noted() -> None:
    made = []

    def make() -> FakeMethod:
        made.append(FakeMethod(FakeSearch("b"), notes=["of the other"]))
        return made[-1]

    method = Fallback(FakeMethod(FakeSearch("a"), ["conv"]), "other", make)
    first, second = method.search(site("softmax")), method.search(site("pool"))
    assert first is second is made[0].made
    assert len(made) == 1
    assert list(method.notes) == [
        NoteGroup("tuned by backend other, since no template for softmax", ("softmax",)),
        NoteGroup("tuned by backend other, since no template for pool", ("pool",)),
        "of the other",
    ]


def test_a_task_that_neither_method_can_tune_is_unsupported() -> None:
    method = Fallback(FakeMethod(FakeSearch("a"), []), "other", lambda: FakeMethod(FakeSearch("b"), []))
    with pytest.raises(Unsupported):
        method.search(site("softmax"))


def test_options_are_checked_by_the_first_method_that_can() -> None:
    class Strict(FakeMethod):
        def check_network(self, workloads: Iterable[Any], target: Any) -> None:
            raise RequestError("no such knob")

    with pytest.raises(RequestError, match="no such knob"):
        Fallback(Strict(FakeSearch("a")), "other", lambda: FakeMethod(FakeSearch("b"))).check_network([], None)
    Fallback(FakeMethod(FakeSearch("a")), "other", lambda: Strict(FakeSearch("b"))).check_network([], None)
