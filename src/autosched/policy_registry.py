"""Registry of policies: those of the core, and those of other packages.

A package offers a `core.policies.policy.Policy` by an entry point of the group `autosched.policies`.
Its code runs inside the daemon: a policy that raises, or takes longer than `scheduler.policy_budget_s`, is replaced.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from autosched.core.policies.policy import ALIASES, POLICIES, Policy
from autosched.errors import AutoschedError, NotFound, Refused
from autosched.plugin_registry import installed_plugins

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "autosched.policies"
FALLBACK = POLICIES["interleaved"]
"""Replaces a policy that fails: it needs no estimates, and only code of the core."""


class PolicyBroken(AutoschedError):
    """A policy is installed and cannot be used."""


def _offered() -> "dict[str, EntryPoint]":
    """Policies of other packages by name; a name of the core cannot be used."""
    core = POLICIES.keys() | ALIASES.keys()
    return {name: entry for name, entry in installed_plugins(GROUP).items() if name not in core}


def installed() -> tuple[str, ...]:
    """The names of all policies, the core's first. Imports none."""
    return (*POLICIES, *_offered())


def proper_name(name: str) -> str:
    """The main name of a policy that may have another one."""
    return ALIASES.get(name, name)


def check_name(name: str) -> None:
    """Raise NotFound unless a policy of that name is installed."""
    if proper_name(name) not in (names := installed()):
        raise NotFound(f"no policy is named {name!r}; there are: {', '.join(names)}")


def check_allowed(policy: Policy, allow_interference: bool) -> None:
    """Raise Refused for a policy that disturbs measurements, unless the operator allows it."""
    if policy.shares_units and not allow_interference:
        raise Refused(
            f"under {policy.name!r} steps share a unit, which disturbs what they measure; it is for measuring that, and"
            " needs allow_interference = true in [scheduler] of the configuration"
        )


def load(name: str) -> Policy:
    """Load a policy; imports the package that provides it. Raises NotFound or PolicyBroken."""
    check_name(name)
    if (name := proper_name(name)) in POLICIES:
        return POLICIES[name]
    entry = _offered()[name]
    package = entry.dist.name if entry.dist is not None else entry.module
    try:
        policy = entry.load()
    except Exception as error:  # another package may raise any exception
        raise PolicyBroken(f"the policy {name!r} of the package {package} cannot be loaded: {error!r}") from error
    if not isinstance(policy, Policy):
        raise PolicyBroken(f"the policy {name!r} of the package {package} is a {type(policy).__name__}, not a Policy")
    if policy.name != name:
        raise PolicyBroken(f"the policy {name!r} of the package {package} calls itself {policy.name!r}")
    return policy


class Installed(Mapping[str, Policy]):
    """All policies by name, loaded on access; unusable ones are left out."""

    def __getitem__(self, name: str) -> Policy:
        try:
            return load(name)
        except (NotFound, PolicyBroken):
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        return iter(installed())

    def __len__(self) -> int:
        return len(installed())
