"""Authorisation: who may ask what. Each method names the least role that it needs, and whether it is audited."""

from autosched.protocol.method import Method, Role

__all__ = ["Role", "at_most", "changes", "may", "may_host"]

_RANK = {Role.VIEWER: 0, Role.USER: 1, Role.OPERATOR: 2}


def may(role: Role, method: type[Method]) -> bool:
    """Whether a user of this role may ask this."""
    return _RANK.get(role, -1) >= _RANK[method.least_role]


def at_most(role: Role, most: Role) -> Role:
    """The lesser of two roles of users."""
    return min(role, most, key=_RANK.__getitem__)


def may_host(role: Role) -> bool:
    """Whether this role may attach as the client of a job, given its token."""
    return role is not Role.VIEWER


def changes(method: type[Method]) -> bool:
    """Whether what is asked belongs into the audit trail."""
    return method.least_role is not Role.VIEWER and method.audited
