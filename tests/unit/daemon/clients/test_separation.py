"""Which jobs run apart."""

from pathlib import Path
from typing import Literal

import pytest

from autosched import config
from autosched.daemon.access import keyring, peer_identity
from autosched.daemon.access.access_rules import AccessRules
from autosched.daemon.clients.separation import Separation
from autosched.launch import sandbox
from autosched.protocol.roles import Role

OWN = f"uid {peer_identity.owners()[1]}"


def rules(folder: Path, *roles: Role) -> AccessRules:
    for role in roles:
        keyring.make(folder / "keys", role, role.value)
    settings = config.parse(f'[daemon]\nstate_dir = "{folder}"\n', "test")
    return AccessRules(settings)


@pytest.mark.parametrize(
    ("owner", "apart"),
    [
        (OWN, False), ("uid 0", False), ("key operator", False), ("uid 54321", True), ("key user", True),
        ("key withdrawn", True), ("", True), (f"{OWN}0", True),
    ],
)  # fmt: skip
def test_operators_jobs_run_as_the_daemon(
    owner: str, apart: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "unavailable", lambda: "")
    known = rules(tmp_path, Role.OPERATOR, Role.USER)
    assert Separation("auto", known).runs_apart(owner) is apart
    assert Separation("require", known).runs_apart(owner) is apart
    assert not Separation("off", known).runs_apart(owner)
    assert not Separation("require", known).refusal(owner)
    monkeypatch.setattr(sandbox, "unavailable", lambda: "no bubblewrap")
    assert not Separation("auto", known).runs_apart(owner)
    assert not Separation("auto", known).refusal(owner)
    assert ("no bubblewrap" in Separation("require", known).refusal(owner)) is apart


@pytest.mark.parametrize(
    ("mode", "roles", "why", "warns"),
    [
        ("auto", (Role.USER,), "no bubblewrap", True),
        ("auto", (Role.USER,), "", False),
        ("auto", (Role.OPERATOR, Role.VIEWER), "no bubblewrap", False),
        ("off", (Role.USER,), "", True),
        ("require", (Role.USER,), "no bubblewrap", False),
    ],
)
def test_a_risk_is_told_where_users_submit_jobs_that_cannot_run_apart(
    mode: Literal["auto", "require", "off"],
    roles: tuple[Role, ...],
    why: str,
    warns: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sandbox, "unavailable", lambda: why)
    told = Separation(mode, rules(tmp_path, *roles)).warning()
    assert ("a user key can do what that user can" in told) is warns
