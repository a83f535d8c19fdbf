"""Authorisation: each method of a user names the least role that it needs.

viewer < user < operator. A viewer changes nothing; what a viewer may not ask changes something and is written into the
audit trail. `client` stands aside: it attaches to the job whose token it shows, and asks nothing else.
"""

from enum import StrEnum

from autosched import protocol
from autosched.protocol import Method, PutBlob


class Role(StrEnum):
    """The rights of a connection."""

    VIEWER = "viewer"
    USER = "user"
    OPERATOR = "operator"
    CLIENT = "client"


_RANK = {Role.VIEWER: 0, Role.USER: 1, Role.OPERATOR: 2}

LEAST: dict[type[Method], Role] = {
    protocol.Info: Role.VIEWER,
    protocol.Heartbeat: Role.VIEWER,
    protocol.ListJobs: Role.VIEWER,
    protocol.GetJob: Role.VIEWER,
    protocol.GetRecords: Role.VIEWER,
    protocol.ExplainJob: Role.VIEWER,
    protocol.GetPolicy: Role.VIEWER,
    protocol.ListDevices: Role.VIEWER,
    protocol.ListNews: Role.VIEWER,
    protocol.ListSpans: Role.VIEWER,
    protocol.ListIdle: Role.VIEWER,
    protocol.ListPoison: Role.VIEWER,
    protocol.ListArtifacts: Role.VIEWER,
    protocol.GetFigures: Role.VIEWER,
    protocol.ListQueues: Role.VIEWER,
    protocol.ListStalls: Role.VIEWER,
    protocol.GetBlob: Role.VIEWER,
    protocol.PutBlob: Role.USER,
    protocol.Submit: Role.USER,
    protocol.CancelJob: Role.USER,
    protocol.SetJob: Role.USER,
    protocol.HoldJob: Role.USER,
    protocol.ReleaseJob: Role.USER,
    protocol.ChoosePolicy: Role.OPERATOR,
    protocol.ListAudit: Role.OPERATOR,
    protocol.ListLoopTasks: Role.OPERATOR,
    protocol.Shutdown: Role.OPERATOR,
}
"""A method that is not listed here is for operators, and counts as a change."""

_UNTOLD = (PutBlob, protocol.ListAudit, protocol.ListLoopTasks)
"""Above a viewer, and yet no change: a file in the store does nothing before a job names it."""


def least(method: type[Method]) -> Role:
    """The least role that may ask this."""
    return LEAST.get(method, Role.OPERATOR)


def may(role: Role, method: type[Method]) -> bool:
    """Whether a user of this role may ask this."""
    return _RANK.get(role, -1) >= _RANK[least(method)]


def at_most(role: Role, most: Role) -> Role:
    """The lesser of two roles of users."""
    return min(role, most, key=_RANK.__getitem__)


def may_host(role: Role) -> bool:
    """Whether this role may attach as the client of a job, given its token."""
    return role is not Role.VIEWER


def changes(method: type[Method]) -> bool:
    """Whether what is asked belongs into the audit trail."""
    return least(method) is not Role.VIEWER and method not in _UNTOLD
