"""A child that answers on a pipe: callers learn of its failure in time, and no process is left."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from autosched.model import JobFailure
from autosched.process.answering_child import AnsweringChild
from deadlines import DEADLINE_S
from processes import dies

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


@pytest.fixture
def child(tmp_path: Path) -> Iterator[AnsweringChild]:
    with (tmp_path / "log").open("ab") as log:
        made = AnsweringChild(
            "unit.process.answering", ["a", "word"], environment=ENVIRONMENT, output=log, folder=tmp_path
        )
    yield made
    made.close()


def said(child: AnsweringChild) -> str:
    answer = child.answer(DEADLINE_S)
    assert answer
    return msgspec.msgpack.decode(answer, type=JobFailure).message


def test_it_answers_again_and_again_and_its_output_goes_elsewhere(child: AnsweringChild, tmp_path: Path) -> None:
    for number in range(3):
        child.tell(f"hello {number}\n".encode())
        assert said(child) == f"a word hello {number}"
    assert (tmp_path / "log").read_text() == 3 * "printed\n"


@pytest.mark.parametrize(("order", "how"), [("die 3", "ended with exit code 3"), ("crash", "was killed by SIGSEGV")])
def test_one_that_dies_answers_with_nothing(child: AnsweringChild, order: str, how: str) -> None:
    child.tell(f"{order}\n".encode())
    assert child.answer(DEADLINE_S) == b""
    assert child.how_it_ended() == how
    child.tell(b"anybody there?\n")
    assert child.answer(DEADLINE_S) == b""


def test_one_that_hangs_is_waited_for_no_longer_than_allowed(child: AnsweringChild) -> None:
    child.tell(b"hang\n")
    assert child.answer(0.01) is None


def test_after_its_last_order_it_ends(child: AnsweringChild) -> None:
    child.tell(b"the last\n", last=True)
    assert said(child) == "a word the last"
    assert child.answer(DEADLINE_S) == b""
    assert child.how_it_ended() == "ended with exit code 0"


def test_what_it_started_ends_with_it(child: AnsweringChild) -> None:
    child.tell(b"leave\n")
    left = int(said(child))
    child.kill()
    assert dies(left)
    assert child.how_it_ended().startswith("was killed by SIGKILL, as the system does when memory runs out")
