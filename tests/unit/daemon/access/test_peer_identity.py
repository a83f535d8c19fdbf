"""Identity of the peer, from the kernel."""

import asyncio
import os
import socket
import threading
from pathlib import Path

import pytest

from autosched import config
from autosched.daemon.access import endpoints, peer_identity
from autosched.errors import ConfigError, Refused
from autosched.protocol.roles import Role
from deadlines import DEADLINE_S

STRANGER = 54_321


def test_a_unix_socket_identifies_the_user_of_its_peer() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert peer_identity.peer_uid(ours) == os.geteuid()


def test_the_owner_and_root_may_everything() -> None:
    assert asyncio.run(peer_identity.local_role(os.geteuid(), None)) is Role.OPERATOR
    assert asyncio.run(peer_identity.local_role(0, None)) is Role.OPERATOR


def test_members_of_the_group_are_users_and_others_have_no_role(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_identity, "_groups", lambda uid: [7, 8])
    assert asyncio.run(peer_identity.local_role(STRANGER, 8)) is Role.USER
    for group in (9, None):
        with pytest.raises(Refused, match=f"not to uid {STRANGER}"):
            asyncio.run(peer_identity.local_role(STRANGER, group))


def test_a_slow_directory_of_users_delays_no_other_login(monkeypatch: pytest.MonkeyPatch) -> None:
    others_went_on = threading.Event()
    monkeypatch.setattr(peer_identity, "_groups", lambda uid: [8] if others_went_on.wait(DEADLINE_S) else [])

    async def both() -> Role:
        asked = asyncio.ensure_future(peer_identity.local_role(STRANGER, 8))
        await asyncio.sleep(0)
        others_went_on.set()
        return await asked

    assert asyncio.run(both()) is Role.USER


def test_a_directory_of_users_that_does_not_answer_refuses_all(monkeypatch: pytest.MonkeyPatch) -> None:
    given_up = threading.Event()
    monkeypatch.setattr(peer_identity, "_groups", lambda uid: [8] if given_up.wait(DEADLINE_S) else [])
    monkeypatch.setattr(peer_identity, "DIRECTORY_S", 0.01)

    async def ask() -> None:
        try:
            await peer_identity.local_role(STRANGER, 8)
        finally:
            given_up.set()

    with pytest.raises(Refused, match=f"does not tell the groups of uid {STRANGER}: try again"):
        asyncio.run(ask())


def test_a_user_without_a_name_has_no_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Refused):
        asyncio.run(peer_identity.local_role(2**31 - 2, 0))


def test_an_unknown_group_stops_the_start() -> None:
    assert peer_identity.group_id("") is None
    assert peer_identity.group_id("root") == 0
    with pytest.raises(ConfigError, match=r"daemon\.group: there is no group 'no-such-group'"):
        peer_identity.group_id("no-such-group")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to a group that it is no member of")
def test_the_socket_is_given_to_the_group(tmp_path: Path) -> None:
    settings = config.parse(f'[daemon]\nstate_dir = "{tmp_path}"\nsocket = "{tmp_path}/s"\ngroup = "daemon"', "x")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        assert endpoints.on_unix(listener, settings).local
    status = (tmp_path / "s").stat()
    assert (status.st_gid, status.st_mode & 0o777) == (peer_identity.group_id("daemon"), 0o660)
