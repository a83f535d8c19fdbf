"""Decides which jobs run apart from the user of their process, and tells the risk where they cannot.

Backends are programs, so a user who submits a job runs programs here. The daemon's user and operators may do anything
anyway: their jobs run as its user. Jobs of all others run apart.
"""

from typing import Literal

from autosched.daemon.access.access_rules import AccessRules
from autosched.launch import sandbox

RISK = "jobs of users run as this daemon's own user: a user key can do what that user can, such as reading all keys"


class Separation:
    """The jobs of this daemon that run apart."""

    def __init__(self, mode: Literal["auto", "require", "off"], rules: AccessRules) -> None:
        self._mode, self._rules = mode, rules

    @property
    def required(self) -> bool:
        """Whether no such job may run where it cannot run apart."""
        return self._mode == "require"

    def applies_to(self, owner: str) -> bool:
        """Whether the jobs of an owner should run apart, here and on lent hosts."""
        return self._mode != "off" and not self._rules.is_operator(owner)

    def runs_apart(self, owner: str) -> bool:
        """Whether the jobs of an owner run apart on this machine."""
        return self.applies_to(owner) and not sandbox.unavailable()

    def refusal(self, owner: str) -> str:
        """Why no job of an owner is accepted; empty if it is."""
        if not self.required or not self.applies_to(owner) or not (why := sandbox.unavailable()):
            return ""
        return f"daemon.sandbox is 'require', and jobs of users cannot run apart here: {why}; ask the operator"

    def warning(self) -> str:
        """The risk of jobs that do not run apart; empty if no users but operators may submit, or if all jobs do."""
        if self.required or not self._rules.admits_others():
            return ""
        if self._mode == "off":
            return f"{RISK} (daemon.sandbox is 'off')"
        return f"{RISK}; {why}" if (why := sandbox.unavailable()) else ""
