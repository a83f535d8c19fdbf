"""Late, repeated and reordered answers are never counted twice; `benchmarks/answers.py` tests a million."""

import asyncio
from collections.abc import Awaitable

import pytest
from answers import shuffle
from msgspec import Struct

from autosched.core.events import StepEnded
from autosched.daemon.clients.client_session import ClientSession
from autosched.model import Outcome
from autosched.protocol import AddRecord, EndStep, Method


@pytest.mark.parametrize("seed", range(3))
def test_each_answer_counts_once(seed: int) -> None:
    told = asyncio.run(shuffle(1_500, seed))
    assert told["violations"] == []
    assert min(told["refused"], told["acknowledged"], told["steps"], told["records"]) > 50


class TrustsNumbers(ClientSession):
    """Takes each record for new, whatever its number."""

    def handle(self, method: Method) -> Awaitable[Struct | None]:
        if isinstance(method, AddRecord):
            self._progress.get(self._job).next_number = 0
        return super().handle(method)


class TrustsSteps(ClientSession):
    """Takes each end for the first one."""

    def handle(self, method: Method) -> Awaitable[Struct | None]:
        if isinstance(method, EndStep):
            return self._runtime.post(lambda: StepEnded(method.step, Outcome.DONE, method.load))
        return super().handle(method)


@pytest.mark.parametrize(
    ("session", "words"), [(TrustsNumbers, "was stored 2 times"), (TrustsSteps, "acknowledged, counted 2")]
)
def test_a_session_that_counts_twice_is_found_out(session: type[ClientSession], words: str) -> None:
    told = asyncio.run(shuffle(1_500, 0, session))
    assert words in " ".join(told["violations"])
