"""Time limit of third-party policies, whose code runs in the daemon's only thread.

The limit of a decision is CPU time, so that a busy machine makes no policy look slow. A limit of wall time stops code
that sleeps or never returns: an alarm raises an exception inside that code.
"""

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import wraps
from types import FrameType, TracebackType
from typing import ParamSpec, TypeVar

from autosched.core.policies.policy import POLICIES, Policy

P = ParamSpec("P")
R = TypeVar("R")

WALL_FACTOR = 6.0
"""Ratio of the limit of wall time to that of CPU time."""


class PolicyOverran(Exception):
    """The policy has exceeded its time limit."""


class _Alarm(BaseException):
    """Raised inside the policy. Not an Exception, so that `except Exception` there does not catch it."""


class PolicyTimeLimit:
    """Context manager for calls of a policy, in the main thread only. The calls of a decision share `limit_s`."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._used_s = 0.0
        self._armed = False

    def renewed(self) -> "PolicyTimeLimit":
        """Reset the time, since a new decision begins."""
        self._used_s = 0.0
        return self

    def __enter__(self) -> None:
        self._handler = signal.signal(signal.SIGALRM, self._ring)
        wall_s = WALL_FACTOR * self.limit_s
        self._timer = signal.setitimer(signal.ITIMER_REAL, wall_s, wall_s)
        self._began_at = time.thread_time()
        self._armed = True

    def _ring(self, number: int, frame: FrameType | None) -> None:
        if self._armed:
            raise _Alarm

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._armed = False
        self._used_s += time.thread_time() - self._began_at
        signal.setitimer(signal.ITIMER_REAL, *self._timer)
        signal.signal(signal.SIGALRM, self._handler)
        if kind is _Alarm:
            raise PolicyOverran(f"it did not return within {WALL_FACTOR * self.limit_s:g} s") from None
        if kind is None and self._used_s > self.limit_s:
            raise PolicyOverran(f"a decision took it {self._used_s:.3f} s, and {self.limit_s:g} s are allowed")


class LimitedPolicies(Mapping[str, Policy]):
    """Policies by name. Those of other packages have a time limit in each call."""

    def __init__(self, policies: Mapping[str, Policy], limit: PolicyTimeLimit) -> None:
        self._policies, self._limit = policies, limit

    def __getitem__(self, name: str) -> Policy:
        policy = self._policies[name]
        if name in POLICIES:
            return policy
        admits = None if policy.admits is None else self._limited(policy.admits)
        return replace(policy, key=self._limited(policy.key), admits=admits)

    def _limited(self, call: Callable[P, R]) -> Callable[P, R]:
        @wraps(call)
        def limited(*args: P.args, **kwargs: P.kwargs) -> R:
            with self._limit:
                return call(*args, **kwargs)

        return limited

    def __iter__(self) -> Iterator[str]:
        return iter(self._policies)

    def __len__(self) -> int:
        return len(self._policies)
