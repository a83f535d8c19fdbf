"""Logins over TCP, the rights of a role, and the audit trail."""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from autosched.api.connection import Daemon
from autosched.cli.command_table import run as command_line
from autosched.daemon.access import acceptor, authenticator, keyring
from autosched.daemon.access.acceptor import STRANGERS_OF_HOST_MAX, Connection, Room
from autosched.daemon.access.authenticator import RemotePeer
from autosched.daemon.access.endpoints import Endpoint
from autosched.daemon.access.login_rate_limit import FAILURES_MAX
from autosched.daemon.access.peer_identity import Principal
from autosched.daemon.compose import Daemon as Served
from autosched.errors import AutoschedError, Busy, ConfigError, NotFound, Refused
from autosched.protocol import (
    DAEMON_METHODS,
    PROTOCOL,
    AuditEntry,
    AuditList,
    Authenticate,
    Challenge,
    DaemonInfo,
    Done,
    Hello,
    HoldJob,
    Info,
    JobList,
    ListAudit,
    ListJobs,
    ReleaseJob,
    SetJob,
    Submit,
    Submitted,
    Welcome,
)
from autosched.protocol.roles import Role
from autosched.wire import keys
from autosched.wire.blocking_link import BlockingLink
from autosched.wire.handshake import introduce
from autosched.wire.keys import Key
from autosched.wire.link import Link
from deadlines import DEADLINE_S
from integration.served import BUILD, SHA256, TCP, Puppet, run, serving, spec, user

TLS_FILES = Path(__file__).parents[1] / "tls"
CERTIFICATE = f'tls_certificate = "{TLS_FILES}/tls.crt"\ntls_key = "{TLS_FILES}/tls.key"\n'
TLS = f"{TCP}{CERTIFICATE}"


@pytest.fixture(autouse=True)
def no_key_of_the_tester(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(keys.FILE_VARIABLE, raising=False)
    monkeypatch.delenv(keys.VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    monkeypatch.setattr(authenticator, "FAILED_S", 0.0)


@asynccontextmanager
async def come(served: Served, key: Key | None, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Daemon]:
    """Opens a connection over TCP with a key."""
    monkeypatch.setenv(keys.VARIABLE, key.line() if key is not None else "")
    daemon = await Daemon.connect(served._addresses[1])
    try:
        yield daemon
    finally:
        daemon.close()


async def trail(folder: Path) -> tuple[AuditEntry, ...]:
    daemon = await Daemon.connect(f"unix:{folder}/api.sock")
    entries = (await daemon.link.call(ListAudit(), AuditList)).entries
    daemon.close()
    return entries


# Coming in -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [TLS, TCP], ids=["tls", "loopback"])
def test_a_key_admits_with_its_role(settings: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = {role: keyring.make(tmp_path / "keys", role)[0] for role in Role}

    async def work() -> None:
        async with serving(tmp_path, settings) as served:
            assert served._addresses[1].startswith("tls://" if settings == TLS else "tcp://")
            (await user(tmp_path)).close()
            async with come(served, made[Role.VIEWER], monkeypatch) as viewer:
                assert viewer.welcome.role == "viewer"
                assert (await viewer.info()).pid == os.getpid()
                with pytest.raises(Refused, match=r"submit is for the role user; key .* has the role viewer"):
                    await viewer.submit(spec())
            async with come(served, made[Role.USER], monkeypatch) as one:
                job = await one.submit(spec())
                with pytest.raises(Refused, match="choose_policy is for the role operator"):
                    await one.choose_policy("interleaved")
            async with come(served, made[Role.OPERATOR], monkeypatch) as operator:
                assert (await operator.choose_policy("interleaved")).policy == "interleaved"
            with pytest.raises(Refused, match="has the role client, which cannot come as a user"):
                async with come(served, made[Role.CLIENT], monkeypatch):
                    pass
            submitted, chosen = (await trail(tmp_path))[-2:]
            assert (submitted.who, submitted.role) == (f"key {made[Role.USER].id}", "user")
            assert (submitted.command, submitted.outcome) == ("submit", f"job {job.job}")
            assert (chosen.who, chosen.command) == (f"key {made[Role.OPERATOR].id}", "choose_policy")

    run(work)


def test_a_quota_of_a_key_limits_its_active_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alice, _ = keyring.make(tmp_path / "keys", Role.USER, "alice", 2)
    bob, _ = keyring.make(tmp_path / "keys", Role.USER, "bob")

    async def work() -> None:
        async with serving(tmp_path, TCP) as served:
            (await user(tmp_path)).close()
            async with come(served, bob, monkeypatch) as other:
                for _ in range(3):
                    await other.submit(spec())
            async with come(served, alice, monkeypatch) as daemon:
                first = await daemon.submit(spec())
                await daemon.submit(spec())
                with pytest.raises(Refused, match="2 jobs of key alice are active, which is its quota"):
                    await daemon.submit(spec())
                await daemon.cancel(first.job)
                await daemon.submit(spec())

    run(work)


def test_a_user_stops_his_own_jobs_and_an_operator_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ada, ben = (keyring.make(tmp_path / "keys", Role.USER)[0] for _ in range(2))
    operator, _ = keyring.make(tmp_path / "keys", Role.OPERATOR)

    async def work() -> None:
        async with serving(tmp_path, TCP) as served:
            (await user(tmp_path)).close()
            async with come(served, ada, monkeypatch) as one:
                first, second = [(await one.submit(spec())).job for _ in range(2)]
            async with come(served, ben, monkeypatch) as other:
                third = (await other.submit(spec())).job
                with pytest.raises(Refused, match=f"job {first} belongs to key {ada.id}, and you are key {ben.id}"):
                    await other.cancel(first)
                for method in (SetJob(job=first, priority=9), HoldJob(job=first), ReleaseJob(job=first)):
                    with pytest.raises(Refused, match=f"job {first} belongs to key {ada.id}"):
                        await other.link.call(method, Done)
                await other.cancel(third)
                assert await owned(other, "me") == [third]
                assert await owned(other, f"key {ada.id}") == [first, second]
                assert await owned(other, "") == [first, second, third]
        async with serving(tmp_path, TCP) as served:  # it is in the journal
            async with come(served, ada, monkeypatch) as one:
                await one.cancel(first)
            async with come(served, operator, monkeypatch) as daemon:
                await daemon.cancel(second)
                ends = [(await daemon.job(job)).failure for job in (first, second)]
                assert [end.message for end in ends if end] == [
                    "cancelled by its user",
                    f"cancelled by key {operator.id}",
                ]

    run(work)


async def owned(daemon: Daemon, owner: str) -> list[int]:
    return [view.job for view in (await daemon.link.call(ListJobs(owner=owner), JobList)).jobs]


def test_connections_without_a_key_or_with_a_wrong_one_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _ = keyring.make(tmp_path / "keys", Role.OPERATOR)

    async def work() -> None:
        async with serving(tmp_path, TLS) as served:
            with pytest.raises(Refused, match="asks for a key"):
                async with come(served, None, monkeypatch):
                    pass
            for wrong in (replace(made, secret=bytes(32)), replace(made, id="other"), replace(made, role=Role.USER)):
                with pytest.raises(Refused, match="does not have the key"):
                    async with come(served, wrong, monkeypatch):
                        pass
            link = await Link.open(served._addresses[1])
            with pytest.raises(Refused, match="wants to see a key"):
                await link.call(Hello(protocol=PROTOCOL, software="x"), Welcome)
            await link.call(Authenticate(key=made.id, nonce=bytes(32)), Challenge)
            with pytest.raises(Refused, match="or its proof is wrong"):
                await link.call(Hello(protocol=PROTOCOL, software="x", proof=bytes(32)), Welcome)
            with pytest.raises(Refused, match="has named its key already"):  # one attempt for each nonce
                await link.call(Authenticate(key=made.id, nonce=bytes(32)), Challenge)
            with pytest.raises(AutoschedError, match="no method is named 'info'"):
                await link.call(Info(), DaemonInfo)
            link.close()

    run(work)


def test_a_connection_is_closed_when_its_key_is_revoked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authenticator, "KEYS_S", 0.02)
    old, _ = keyring.make(tmp_path / "keys", Role.USER)

    async def work() -> None:
        async with serving(tmp_path, TCP) as served, come(served, old, monkeypatch) as before:
            new, _ = keyring.make(tmp_path / "keys", Role.USER)
            async with come(served, new, monkeypatch) as after:
                keyring.revoke(tmp_path / "keys", old.id)
                assert f"the key {old.id} was withdrawn" in await before.link.wait_closed()
                assert (await after.info()).pid == os.getpid()

    run(work)


def test_a_connection_of_a_revoked_key_is_closed_although_another_key_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, _ = keyring.make(tmp_path / "keys", Role.OPERATOR, "ops")

    async def work() -> None:
        async with serving(tmp_path, TCP) as served, come(served, old, monkeypatch) as before:
            keyring.revoke(tmp_path / "keys", "ops")
            keyring.make(tmp_path / "keys", Role.VIEWER, "ops")
            served._authenticator.look_at_keys()
            assert "the key ops was withdrawn" in await before.link.wait_closed()

    run(work)


def test_a_client_here_needs_its_token_only_and_elsewhere_a_key_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(settings: str) -> None:
        async with serving(tmp_path, settings) as served:
            daemon = await user(tmp_path)
            job = await daemon.submit(spec())
            if settings == TLS:
                with pytest.raises(Refused, match="wants to see a key"):
                    await Puppet(BUILD).connect(served._addresses[1], job.job, job.token)
            else:
                await Puppet(BUILD).connect(served._addresses[1], job.job, job.token)
            daemon.close()

    keyring.make(tmp_path / "keys", Role.USER)
    run(lambda: work(TCP))
    run(lambda: work(TLS))


async def with_token(served: Served, role: str, token: str, job: int | None) -> None:
    """Says hello with the key that a client's token is worth."""
    link = await Link.open(served._addresses[1])
    try:
        proving = keys.Proving(keys.of_client(token), link.channel)
        proof = proving.answer(await link.call(proving.question(), Challenge))
        hello = Hello(protocol=PROTOCOL, software="x", role=role, job=job, token=token, proof=proof)
        await link.call(hello, Welcome)
    finally:
        link.close()


def test_the_token_of_a_client_is_a_key_for_its_job_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keyring.make(tmp_path / "keys", Role.USER)

    async def work() -> None:
        async with serving(tmp_path, TLS) as served:
            daemon = await user(tmp_path)
            job, other = [await daemon.submit(spec(external=True)) for _ in range(2)]
            daemon.close()
            for role, token, number, refusal in (
                ("user", job.token, None, "which cannot come as a user"),
                ("agent", job.token, None, "which cannot come as an agent"),
                ("client", job.token, other.job, "the token is not that of the client"),
                ("client", "guessed", job.job, "does not have the key"),
            ):
                with pytest.raises(Refused, match=refusal):
                    await with_token(served, role, token, number)
            link = await Link.open(served._addresses[1], serves=DAEMON_METHODS)
            hello = Hello(protocol=PROTOCOL, software="x", role="client", job=job.job, token=job.token)
            assert (await introduce(link, hello)).role == "client"
            link.close()

    run(work)


def test_over_tcp_every_user_needs_a_key(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path, TCP) as served:
            for role in ("user", "agent"):
                link = await Link.open(served._addresses[1])
                with pytest.raises(Refused, match="wants to see a key over TCP"):
                    await link.call(Hello(protocol=PROTOCOL, software="x", role=role), Welcome)
                link.close()

    run(work)


def test_without_the_setting_there_is_no_tcp_listener(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path) as served:
            assert served._addresses == (f"unix:{tmp_path}/api.sock",)

    run(work)


def test_commands_without_an_event_loop_authenticate_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = keyring.make(tmp_path / "keys", Role.VIEWER)
    monkeypatch.setenv(keys.VARIABLE, made.line())

    async def work() -> None:
        async with serving(tmp_path, TLS) as served:

            def ask() -> str:
                with BlockingLink(served._addresses[1]) as daemon:
                    return daemon.call(Info(), DaemonInfo).state_dir

            assert await asyncio.to_thread(ask) == str(tmp_path)

    run(work)


# Staying out ----------------------------------------------------------------------------------------------------------


def test_a_daemon_on_the_network_without_keys_does_not_start(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path, f'listen = "0.0.0.0:0"\n{CERTIFICATE}'):
            raise AssertionError("it started")

    with pytest.raises(ConfigError, match=r"no key is in .*/keys: .* autosched key new ROLE"):
        run(work)


def test_a_certificate_that_cannot_be_used_is_named_with_the_way_to_make_one(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path, TLS.replace("tls.crt", "none.crt")):
            raise AssertionError("it started")

    with pytest.raises(ConfigError, match=r"none\.crt .*openssl req -x509"):
        run(work)


def test_silent_unauthenticated_connections_share_a_limit_and_block_no_local_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, _ = keyring.make(tmp_path / "keys", Role.USER)
    monkeypatch.setattr(acceptor, "STRANGERS_MAX", 4)
    monkeypatch.setattr(acceptor, "PATIENCE_MAX_S", DEADLINE_S)
    monkeypatch.setattr(authenticator, "HELLO_S", DEADLINE_S)

    async def work() -> None:
        async with serving(tmp_path, TCP) as served:
            _, port = served._addresses[1].rsplit(":", 1)
            silent = [socket.create_connection(("127.0.0.1", int(port))) for _ in range(8)]
            daemon = await Daemon.connect(f"unix:{tmp_path}/api.sock")
            assert (await daemon.info()).pid == os.getpid()
            monkeypatch.setenv(keys.VARIABLE, key.line())
            waiting = asyncio.ensure_future(Daemon.connect(served._addresses[1]))
            assert (await daemon.info()).pid == os.getpid()
            assert not waiting.done()
            for one in silent:
                one.close()
            late = await waiting
            assert (await late.info()).pid == os.getpid()
            for link in (daemon, late):
                link.close()

    run(work)


def test_one_machine_may_not_take_all_connections_nor_keep_guessing_keys(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path) as served:
            place, room = served._authenticator.acceptor, Room(100, lambda why: b"a word")
            ours, theirs = socket.socketpair()
            strangers = [Connection(ours.dup(), "10.0.0.9", room) for _ in range(STRANGERS_OF_HOST_MAX)]
            assert all(place.enter(one) for one in strangers)
            assert "of this host have not said who they are" in place.turned_away("10.0.0.9")
            assert place.turned_away("10.0.0.10") == ""
            place.know(strangers[0], Principal("key a", Role.USER))
            assert place.turned_away("10.0.0.9") == ""
            for one in strangers:
                one.sock.close()
                place.leave(one)
            for _ in range(FAILURES_MAX):
                failing = RemotePeer(Endpoint(ours), Connection(ours, "10.0.0.9", room))
                failing.link = Link({})
                await served._authenticator._failed(failing)
            assert place.turned_away("10.0.0.9") == "too many wrong keys"
            assert not place.enter(Connection(ours, "10.0.0.9", room))
            assert theirs.recv(1) == b""  # closed without one
            theirs.close()

    run(work)


# The trail ------------------------------------------------------------------------------------------------------------


def test_the_audit_trail_survives_a_restart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def first() -> None:
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            job = await daemon.submit(spec(options={"password": "hunter2"}))
            await daemon.cancel(job.job)
            with pytest.raises(NotFound):
                await daemon.cancel(99)
            daemon.close()

    async def second() -> None:
        async with serving(tmp_path):
            entries = await trail(tmp_path)
            assert [(one.command, one.outcome) for one in entries] == [
                ("submit", "job 1"),
                ("cancel_job", "done"),
                ("cancel_job", "not_found: there is no job 99; the last one is 1"),
            ]
            assert {(one.who, one.role) for one in entries} == {(f"uid {os.getuid()}", "operator")}
            assert "hunter2" not in str(entries)
            assert json.loads(entries[0].about)["model"] == SHA256
            asked = ["--host", f"unix:{tmp_path}/api.sock", "audit"]
            assert await asyncio.to_thread(command_line, asked) == 0
            header, *rows = capsys.readouterr().out.splitlines()
            assert header.split() == ["NO", "WHEN", "WHO", "ROLE", "COMMAND", "OUTCOME", "ABOUT"]
            assert [row.split()[5:7] for row in rows[:2]] == [["operator", "submit"], ["operator", "cancel_job"]]
            assert await asyncio.to_thread(command_line, [*asked, "-o", "json", "--limit", "1"]) == 0

    run(first)
    run(second)
    (entry,) = json.loads(capsys.readouterr().out)["audit"]
    assert (entry["id"], entry["command"], entry["about"]) == (3, "cancel_job", '{"job":99}')


def test_too_many_submissions_are_refused_with_the_time_of_the_next_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        async with serving(tmp_path) as served:
            daemon = await user(tmp_path)
            queue = served._services.submissions._admission
            queue._bounds = replace(queue._bounds, waiting_of_one=2)
            until = asyncio.Event()
            happen = served._runtime.post

            async def slowly(*words: object, **named: object) -> None:
                await until.wait()
                await happen(*words, **named)  # type: ignore[arg-type]

            monkeypatch.setattr(served._runtime, "post", lambda *ws, **ns: asyncio.ensure_future(slowly(*ws, **ns)))
            ask = Submit(spec=spec())
            first = [asyncio.ensure_future(daemon.link.call(ask, Submitted)) for _ in range(2)]
            await asyncio.sleep(0)
            with pytest.raises(Busy, match="submissions wait already") as busy:
                await daemon.link.call(ask, Submitted)
            assert busy.value.retry_after_s is not None
            patient = asyncio.ensure_future(daemon.submit(spec()))
            until.set()
            assert [(await one).job for one in first] == [1, 2]
            assert (await patient).job == 3
            daemon.close()

    run(work)
