"""Each method that the daemon serves has exactly one function that answers it, for each kind of peer."""

import pytest

from autosched.daemon.answers import ANSWERS, Answers, Caller
from autosched.errors import WireError
from autosched.protocol import CLIENT_METHODS, USER_METHODS, Heartbeat, Info, Return


def test_each_method_of_users_has_a_handler() -> None:
    answered = ANSWERS.methods_of(Caller.USER)
    assert answered == {*USER_METHODS.values()} - {Heartbeat}, "the connection itself answers a heartbeat"


def test_each_method_of_clients_has_a_handler() -> None:
    answered = ANSWERS.methods_of(Caller.CLIENT) | ANSWERS.methods_of(Caller.HELPER)
    assert answered == {*CLIENT_METHODS.values()} - {Heartbeat}
    assert Return not in ANSWERS.methods_of(Caller.CLIENT), "a client may say it as its first word only"


def test_a_method_has_one_handler_for_each_peer() -> None:
    answers = Answers()
    answers.to(Info)(lambda session, method: method)
    answers.to(Info, Caller.CLIENT)(lambda session, method: method)
    with pytest.raises(AssertionError, match="Info of a user has two handlers"):
        answers.to(Info)(lambda session, method: method)


def test_a_method_of_others_is_refused() -> None:
    answers = Answers()
    answers.to(Info)(lambda session, method: method)
    assert answers.answer(Caller.USER, None, Info()) == Info()
    with pytest.raises(WireError, match="a helper may not ask for Info"):
        answers.answer(Caller.HELPER, None, Info())
