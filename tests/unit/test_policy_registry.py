"""Policies of other packages: found by entry point, loaded on request, and named when they cannot be used."""

from collections.abc import Callable
from pathlib import Path

import pytest

from autosched import policy_registry
from autosched.config import SchedulerConfig
from autosched.core.policies.policy import POLICIES
from autosched.daemon.compose import choose_policy
from autosched.errors import ConfigError, NotFound, Refused
from autosched.policy_registry import GROUP, PolicyBroken
from packages import install


@pytest.fixture
def offers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Installs a package that provides policies by these names, given as module:object."""

    def offer(**entries: str) -> None:
        monkeypatch.syspath_prepend(str(install(tmp_path / "packages", GROUP, **entries)))
        monkeypatch.setattr("autosched.plugin_registry._read", {})

    return offer


def test_policies_of_the_core_come_first_and_cannot_be_replaced(offers: Callable[..., None]) -> None:
    offers(lifo="their_policies:lifo", interleaved="their_policies:lifo")
    assert policy_registry.installed() == (*POLICIES, "lifo")
    assert policy_registry.load("lifo").name == "lifo"
    assert policy_registry.load("interleaved") is POLICIES["interleaved"]


def test_nothing_is_imported_to_list_them(offers: Callable[..., None]) -> None:
    offers(broken="their_broken_policies:it")
    assert "broken" in policy_registry.installed()
    policy_registry.check_name("broken")


def test_a_name_that_is_not_there_is_answered_with_those_that_are() -> None:
    with pytest.raises(NotFound, match=r"no policy is named .lifo.; there are: .*interleaved"):
        policy_registry.load("lifo")


BROKEN = [
    ("their_broken_policies:it", "of the package theirs cannot be loaded: ModuleNotFoundError"),
    ("their_policies:missing", "cannot be loaded: AttributeError"),
    ("their_policies:number", "is a int, not a Policy"),
    ("their_policies:stray", "calls itself 'another'"),
]


@pytest.mark.parametrize(("value", "message"), BROKEN)
def test_unusable_policies_are_named(offers: Callable[..., None], value: str, message: str) -> None:
    offers(theirs=value)
    with pytest.raises(PolicyBroken, match=message) as caught:
        policy_registry.load("theirs")
    assert "the policy 'theirs'" in str(caught.value)


def test_a_daemon_starts_without_a_broken_policy_and_not_with_a_mistake(offers: Callable[..., None]) -> None:
    offers(theirs="their_broken_policies:it", lifo="their_policies:lifo", spoiling="their_policies:spoiling")
    policy, trouble = choose_policy(SchedulerConfig(policy="theirs"))
    assert policy.name == "interleaved"
    assert "ModuleNotFoundError" in trouble
    assert trouble.endswith("interleaved decides instead")
    assert choose_policy(SchedulerConfig(policy="lifo"))[1] == ""
    with pytest.raises(ConfigError, match=r"scheduler.policy: no policy is named 'typo'"):
        choose_policy(SchedulerConfig(policy="typo"))
    with pytest.raises(ConfigError, match=r"scheduler.policy: under 'spoiling' steps share a unit"):
        choose_policy(SchedulerConfig(policy="spoiling"))
    assert choose_policy(SchedulerConfig(policy="spoiling", allow_interference=True))[0].name == "spoiling"


def test_interference_is_refused_unless_wanted() -> None:
    with pytest.raises(Refused, match="allow_interference = true"):
        policy_registry.check_allowed(POLICIES["synchronous"], False)
    policy_registry.check_allowed(POLICIES["synchronous"], True)


def test_round_robin_is_another_name_of_interleaved() -> None:
    policy_registry.check_name("round-robin")
    assert policy_registry.load("round-robin") is POLICIES["interleaved"]
    assert "round-robin" not in policy_registry.installed()
