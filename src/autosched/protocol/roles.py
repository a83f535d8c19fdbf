"""Authorisation. Each method names the least role that it needs, and whether it is audited."""

from autosched.protocol.method import Method, Role

__all__ = ["Role", "at_most", "changes", "may", "may_come_as"]

_RANK = {Role.VIEWER: 0, Role.USER: 1, Role.OPERATOR: 2}


def may(role: Role, method: type[Method]) -> bool:
    """Whether a user of this role may call a method."""
    return _RANK.get(role, -1) >= _RANK[method.least_role]


def at_most(role: Role, most: Role) -> Role:
    """The lesser of two roles of users."""
    return min(role, most, key=_RANK.__getitem__)


COMES_AS = {
    "user": (Role.VIEWER, Role.USER, Role.OPERATOR),
    "client": (Role.USER, Role.OPERATOR, Role.CLIENT, Role.AGENT),
    "agent": (Role.OPERATOR, Role.AGENT),
}
"""The roles of keys that may use each role of Hello."""


def may_come_as(said: str, role: Role) -> bool:
    """Whether a key's role allows the role said in Hello. A client must show its token as well."""
    return role in COMES_AS[said]


def changes(method: type[Method]) -> bool:
    """Whether a call belongs in the audit trail."""
    return method.least_role is not Role.VIEWER and method.audited
