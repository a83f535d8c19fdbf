"""Roles of methods."""

import pytest

from autosched import protocol
from autosched.protocol import USER_METHODS, Method, wire_name
from autosched.protocol.roles import COMES_AS, Role, changes, may, may_come_as


def open_to(role: Role) -> list[str]:
    return [wire_name(method) for method in USER_METHODS.values() if may(role, method)]


def test_roles_are_given_to_methods_of_users_only() -> None:
    ours = (protocol.CLIENT_METHODS, protocol.DAEMON_METHODS, protocol.AGENT_METHODS, protocol.HOST_METHODS)
    others = {name: kind for table in (protocol.HELLO, *ours) for name, kind in table.items()}
    assert [
        kind for name, kind in others.items() if name not in USER_METHODS and kind.least_role is not Role.OPERATOR
    ] == []


def test_each_method_has_a_role() -> None:
    ours = (protocol.CLIENT_METHODS, protocol.DAEMON_METHODS, protocol.AGENT_METHODS, protocol.HOST_METHODS)
    tables = (protocol.HELLO, USER_METHODS, *ours)
    asked = {kind for table in tables for kind in table.values()}
    assert asked == {kind for kind in Method.__subclasses__() if kind.__module__.startswith("autosched.protocol.")}
    assert len(asked) == 79


def test_a_role_may_all_that_a_lower_one_may() -> None:
    viewer, user, operator = (set(open_to(role)) for role in (Role.VIEWER, Role.USER, Role.OPERATOR))
    assert viewer < user < operator == set(USER_METHODS)
    assert open_to(Role.CLIENT) == []


@pytest.mark.parametrize("method", [protocol.Submit, protocol.CancelJob, protocol.PutBlob, protocol.Shutdown])
def test_a_viewer_changes_nothing(method: type[Method]) -> None:
    assert not may(Role.VIEWER, method)


def test_only_operators_stop_the_daemon_and_read_the_trail() -> None:
    for method in (protocol.Shutdown, protocol.ChoosePolicy, protocol.ListAudit):
        assert not may(Role.USER, method)
        assert may(Role.OPERATOR, method)


def test_an_unlisted_method_is_for_operators_and_counts_as_a_change() -> None:
    class Invented(Method, frozen=True):
        result = protocol.Done

    assert Invented.least_role is Role.OPERATOR
    assert changes(Invented)


def test_what_is_written_into_the_trail() -> None:
    assert all(changes(method) for method in (protocol.Submit, protocol.CancelJob, protocol.ChoosePolicy))
    assert not any(changes(method) for method in (protocol.Info, protocol.PutBlob, protocol.ListAudit))


@pytest.mark.parametrize(
    ("said", "roles"),
    [
        ("user", [Role.VIEWER, Role.USER, Role.OPERATOR]),
        ("client", [Role.USER, Role.OPERATOR, Role.CLIENT, Role.AGENT]),
        ("agent", [Role.OPERATOR, Role.AGENT]),
    ],
)
def test_who_may_come_as_what(said: str, roles: list[Role]) -> None:
    assert [role for role in Role if may_come_as(said, role)] == roles


def test_each_role_may_come_as_something() -> None:
    assert {role for roles in COMES_AS.values() for role in roles} == set(Role)
