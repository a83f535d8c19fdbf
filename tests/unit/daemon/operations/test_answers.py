"""Each method of a user has exactly one handler."""

import pytest

from autosched.daemon.operations.answers import ANSWERS
from autosched.daemon.operations.user_session import Answers
from autosched.protocol import USER_METHODS, Heartbeat, Info


def test_each_method_of_users_has_a_handler() -> None:
    assert set(ANSWERS) == {*USER_METHODS.values()} - {Heartbeat}, "the connection itself answers a heartbeat"


def test_a_method_has_one_handler() -> None:
    answers = Answers()
    answers.to(Info)(lambda session, method: method)
    with pytest.raises(AssertionError, match="Info has two handlers"):
        answers.to(Info)(lambda session, method: method)
