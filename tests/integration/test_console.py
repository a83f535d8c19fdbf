"""The console over raw sockets, on a daemon with scripted clients."""

import asyncio
import json
import os
import ssl
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from autosched import config
from autosched.core.events import PolicyChosen
from autosched.daemon.access import acceptor, keyring
from autosched.daemon.access.acceptor import Places
from autosched.daemon.access.login_rate_limit import FAILURES_MAX
from autosched.daemon.compose import Daemon as Served
from autosched.daemon.console import server
from autosched.daemon.event_stream.daemon_events import DaemonEvent
from autosched.errors import ConfigError
from autosched.protocol import AuditList, ListAudit
from autosched.protocol.roles import Role
from autosched.wire import keys
from autosched.wire.whereabouts import WHEREABOUTS
from deadlines import DEADLINE_S
from integration.served import BUILD, PROFILE, attached, run, serving, spec, user

TLS_FILES = Path(__file__).parents[1] / "tls"
TLS = f'tls_certificate = "{TLS_FILES}/tls.crt"\ntls_key = "{TLS_FILES}/tls.key"\n'
ON_TCP = '[[device]]\nname = "pi4-1"\nkind = "cpu"\n[console]\nlisten = "127.0.0.1:0"\n'


class Typist:
    """Types lines and reads answers, as nc does."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def line(self) -> str:
        """Returns the next line."""
        async with asyncio.timeout(DEADLINE_S):
            return (await self._reader.readline()).decode().rstrip("\n")

    def type(self, text: str) -> None:
        """Sends a line without waiting."""
        self._writer.write(text.encode())

    async def answer(self) -> list[str]:
        """Returns the lines up to the one with a dot."""
        lines = []
        while (line := await self.line()) != ".":
            lines.append(line)
            assert self._reader.at_eof() is False or lines[-1], lines
        return lines

    async def ask(self, text: str) -> list[str]:
        """Sends a line and returns its answer."""
        self.type(text + "\n")
        return await self.answer()

    def close(self) -> None:
        """Closes the connection."""
        self._writer.close()


@asynccontextmanager
async def console(folder: Path, *, tcp: bool = False) -> AsyncIterator[Typist]:
    """Returns a connection, greeted."""
    there = json.loads((folder / WHEREABOUTS).read_text())["console"]
    if tcp:
        host, _, port = there[1].rpartition(":")
        typist = Typist(*await asyncio.open_connection(host, int(port)))
    else:
        typist = Typist(*await asyncio.open_unix_connection(there[0].removeprefix("unix:")))
    greeting = await typist.line()
    assert greeting.startswith("# autosched ")
    assert f"role={'none' if tcp else 'operator'}   help | quit" in greeting
    yield typist
    typist.close()


def test_the_operators_storyboard_runs_as_written(tmp_path: Path) -> None:
    """The session of the documentation, over TCP, with a key."""

    async def work() -> None:
        key, _ = keyring.make(tmp_path / "keys", Role.OPERATOR)
        async with (
            serving(tmp_path, ON_TCP, changed=f"{ON_TCP}[limits]\njobs_active_max = 50\n") as served,
            console(tmp_path, tcp=True) as typist,
        ):
            daemon = await user(tmp_path)
            for _ in range(11):
                await daemon.submit(spec())
            _, puppet = await attached(daemon, tmp_path, PROFILE)
            step = await puppet.steps.get()
            for _ in range(4):
                await daemon.submit(spec(name="net5"))
            assert (await typist.ask("jobs"))[0].startswith("ERR refused who are you?")
            assert await typist.ask(f"auth {key.id} {key.secret.hex()}") == ["OK role=operator"]
            figures = await typist.ask("info sched")
            assert figures[:2] == ["OK", "# sched"]
            assert {"jobs_running:1", "jobs_waiting:15"} <= set(figures)
            assert any(line.startswith("loop_lag_ms_p99:") for line in figures)
            assert " 12  net " in "\n".join(await typist.ask("jobs state=profile"))
            assert await typist.ask("jobs state=waiting") == ["OK there are none"]
            assert (await typist.ask("why 14"))[1].startswith("job 14 waits for its client")
            assert await typist.ask("set job 14 priority +5") == ["OK was 0"]
            assert await typist.ask("hold 13") == ["OK held 1 job: 13"]
            assert await typist.ask("release 13") == ["OK released 1 job: 13"]
            assert await typist.ask("cancel 12-15 --dry-run") == [
                "OK would cancel 4 jobs: 12,13,14,15; 0 trials are kept"
            ]
            said = await typist.ask('drain pi4-1 --reason "fan" --deadline 10m')
            assert said == ["OK 1 step running; killed in 10m00s; `undrain pi4-1` to undo"]
            assert await typist.ask("pause") == ["OK no new steps start; running ones finish; `resume` to undo"]
            assert await typist.ask("reload check") == ["OK 1 change: limits.jobs_active_max 1000->50"]
            said = await typist.ask("reload timeout 120")
            assert said == ["OK 1 change: limits.jobs_active_max 1000->50; reverts in 2m00s unless `confirm`"]
            assert served._authenticator.limits.jobs_active_max == 50
            assert await typist.ask("confirm") == ["OK the settings are kept"]
            typist.type("monitor job=12\n")
            assert await typist.line() == "OK a line ends it"
            await puppet.end(step)
            assert (
                f" StepEnded step={step.id} job=12 task=1 stage=profile units=pi4-1 outcome=done" in await typist.line()
            )
            typist.type("\n")
            while await typist.line() != ".":
                pass
            assert (await typist.ask("slowlog"))[0].startswith("OK")
            tasks = await typist.ask("tasks")
            number = next(line for line in tasks if "the scheduler's loop" in line).split()[0]
            stack = await typist.ask(f"where {number}")
            assert stack[0] == "OK the scheduler's loop"
            assert any("Runtime.run daemon/runtime.py:" in line for line in stack)
            commands = [entry.command for entry in (await daemon.link.call(ListAudit(), AuditList)).entries]
            assert commands[-8:] == [
                "set_job", "hold_job", "release_job", "drain_unit", "pause", "reload", "reload", "confirm_reload",
            ]  # fmt: skip
            assert (await typist.ask("shutdown drain 5m"))[0].startswith("OK running steps finish, for 5m00s at most")
            await served._stop.wait()
            daemon.close()

    run(work)


def test_a_pause_before_a_stop_ends_at_the_next_start(tmp_path: Path) -> None:
    async def first() -> None:
        async with serving(tmp_path) as served, console(tmp_path) as typist:
            daemon = await user(tmp_path)
            _, puppet = await attached(daemon, tmp_path, BUILD)
            step = await puppet.steps.get()
            await typist.ask("shutdown drain 20s")
            await until_so(lambda: bool(served._runtime.state.paused))
            assert not served._stop.is_set()
            await puppet.end(step, BUILD)
            await served._stop.wait()
            assert puppet.steps.empty()

    async def second() -> None:
        async with serving(tmp_path), console(tmp_path) as typist:
            assert "paused:" in await typist.ask("info sched")

    run(first)
    run(second)


async def until_so(holds: Callable[[], bool]) -> None:
    """Waits until the condition holds."""
    async with asyncio.timeout(DEADLINE_S):
        while not holds():  # noqa: ASYNC110 (nothing tells)
            await asyncio.sleep(0.005)


def test_unconfirmed_settings_are_undone(tmp_path: Path) -> None:
    async def work() -> None:
        wanted = '[guard]\nsentinel_interval_s = 7.0\n[scheduler]\npolicy = "interleaved"\n'
        async with serving(tmp_path, changed=wanted) as served, console(tmp_path) as typist:
            chosen = list[str]()

            def take(told: DaemonEvent) -> None:
                chosen.extend([told.what.policy] if isinstance(told.what, PolicyChosen) else [])

            served._runtime.stream.attach(take)
            said = await typist.ask("reload timeout 0.2")
            assert "scheduler.policy predictive->interleaved" in said[0]
            await until_so(lambda: chosen == ["interleaved", "predictive"])
            assert served._runtime.scheduler.policy.name == "predictive"
            assert served._live.now.guard.sentinel_interval_s == 30.0
            assert (await typist.ask("confirm"))[0].startswith("ERR refused nothing is to be confirmed")

    run(work)


def test_a_setting_that_needs_a_restart_is_reported_and_a_mistake_changes_nothing(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path, changed="[scheduler]\nstep_timeout_s = 5.0\n"), console(tmp_path) as typist:
            (said,) = await typist.ask("reload check")
            assert "scheduler.step_timeout_s 600.0->5.0 (needs a restart)" in said
        async with serving(tmp_path, changed="[limits]\njobs = 5\n"), console(tmp_path) as typist:
            (said,) = await typist.ask("reload")
            assert said.startswith("ERR config changed:4: limits.jobs: no such setting; there are: jobs_active_max")

    run(work)


def test_each_answer_ends_with_a_dot_and_each_error_names_a_valid_command(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path), console(tmp_path) as typist:
            for text, words in {
                "jobz": "ERR request there is no command 'jobz'; did you mean job?",
                "xyzzy": "ERR request there is no command 'xyzzy'; type help",
                "why 14": "ERR not_found there is no job 14; there are none",
                "why": "ERR request explain takes one job. Type: help explain",
                "cancel": "ERR request cancel takes jobs: a number, 12-15",
                "cancel last": "ERR not_found there are no jobs of yours yet",
                "hold @net": "ERR not_found no active job of yours is named 'net'. See which there are: jobs",
                "info nothing": "ERR not_found there is no section 'nothing'; there are: daemon, sched",
                "drain cpu0": "ERR request a drain needs a reason",
                "drain gpu7 --reason x": "ERR not_found there is no unit 'gpu7'; there are: ",
                "undrain cpu0": "ERR refused cpu0 is not drained: it gets steps. See: devices",
                "free cpu0": "ERR request if you know that nothing runs on cpu0 any more: free cpu0 --force",
                "set job 1 colour red": "ERR request set what? Write: set job 14 priority 5",
                "set policy magic": "ERR not_found no policy is named 'magic'",
                "resume": "ERR refused nothing is paused",
                "reload": "ERR refused this daemon was started without a file of settings",
                "shutdown": "ERR request write: shutdown drain 5m, or shutdown now",
                "where 0": "ERR not_found there is no task '0' now. See which there are: tasks",
                "monitor colour=red": "ERR request 'colour=red' is no filter; write for example: job=12,14",
                "auth a b": "ERR refused the key 'a' is not known here, or its secret is wrong",
                "audit many": "ERR request 'many' is no whole number",
                "audit -5": "ERR request limit: expected a whole number >= 1; type help",
                "set job 1 priority 101": "ERR request priority: expected a whole number <= 100; type help",
                'why "x': "ERR request no closing quotation: close the quote",
                "jobs red": "ERR request 'red' is no filter. Write: jobs state=waiting",
                "help xyzzy": "ERR request there is no command 'xyzzy'; type help",
            }.items():  # fmt: skip
                (said,) = await typist.ask(text)
                assert said.startswith(words), (text, said)

    run(work)


def test_a_list_of_jobs_is_not_reduced_to_the_last(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path), console(tmp_path) as typist:
            daemon = await user(tmp_path)
            for _ in range(2):
                await daemon.submit(spec())
            for text in ("set job 1-2 priority 5", "set job all deadline 2h"):
                (said,) = await typist.ask(text)
                assert " names 2 jobs, and this command takes one." in said
            assert await typist.ask("set job @net priority 5") == ["OK was 0"]
            assert await typist.ask("set job 2 priority 6") == ["OK was 5"]
            daemon.close()

    run(work)


def test_json_chains_and_carriage_returns(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path), console(tmp_path) as typist:
            typist.type("jobs -j; devices -j ;nonsense;info daemon -j\r\n")
            ok, text = await typist.answer()
            assert (ok, msgspec.json.decode(text)) == ("OK", {"schema": 1, "jobs": []})
            ok, text = await typist.answer()
            assert msgspec.json.decode(text)["devices"][0]["unit"]
            assert (await typist.answer())[0].startswith("ERR request there is no command 'nonsense'")
            ok, text = await typist.answer()
            assert msgspec.json.decode(text)["figures"]["daemon"]["version"]
            assert (await typist.ask("? drain"))[1].startswith("drain UNIT --reason TEXT")
            assert (await typist.ask("drain ?"))[1].startswith("drain UNIT --reason TEXT")
            assert max(map(len, await typist.ask("help"))) <= 100

    run(work)


def test_endless_lines_and_surplus_connections_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "PLACES", Places(2, 1, "the console", "one"))

    async def work() -> None:
        async with serving(tmp_path), console(tmp_path) as one, console(tmp_path) as two:
            there = json.loads((tmp_path / WHEREABOUTS).read_text())["console"][0].removeprefix("unix:")
            third = Typist(*await asyncio.open_unix_connection(there))
            assert (await third.line()).startswith(f"ERR busy this daemon refuses: 2 connections of uid {os.getuid()}")
            third.close()
            one.type("x" * 10_000)
            assert (await one.answer())[0].startswith("ERR request a line of more than 4096 bytes")
            assert await one.line() == ""
            assert await two.ask("quit") == ["OK goodbye"]

    run(work)


# Beyond this machine --------------------------------------------------------------------------------------------------


@asynccontextmanager
async def everywhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Served, int]]:
    """Yields a daemon whose console other machines reach, and its port; this machine counts as another one."""
    monkeypatch.setattr(acceptor, "loopback", lambda host: False)
    monkeypatch.setattr(server, "FAILED_S", 0.0)
    async with serving(folder, f'{TLS}[console]\nlisten = "0.0.0.0:0"\n') as served:
        (address,) = json.loads((folder / WHEREABOUTS).read_text())["console"][1:]
        assert address.startswith("tls://0.0.0.0:")
        yield served, int(address.rpartition(":")[2])


async def encrypted(port: int) -> Typist:
    trusted = ssl.create_default_context(cafile=str(TLS_FILES / "tls.crt"))
    trusted.check_hostname = False
    return Typist(*await asyncio.open_connection("127.0.0.1", port, ssl=trusted))


def test_other_machines_need_tls_and_have_no_role_before_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, _ = keyring.make(tmp_path / "keys", Role.OPERATOR)

    async def work() -> None:
        async with everywhere(tmp_path, monkeypatch) as (_, port):
            typist = await encrypted(port)
            assert "role=none" in await typist.line()
            assert (await typist.ask("jobs"))[0].startswith("ERR refused who are you?")
            assert await typist.ask(f"auth {key.id} {key.secret.hex()}") == ["OK role=operator"]
            assert await typist.ask("jobs") == ["OK there are none"]
            typist.close()
            plain = Typist(*await asyncio.open_connection("127.0.0.1", port))
            plain.type("jobs\n")
            assert await plain.line() in ("", "\x15\x03\x03")  # an alert of TLS at most
            plain.close()

    run(work)


def test_a_console_is_closed_when_its_key_is_revoked(tmp_path: Path) -> None:
    key, _ = keyring.make(tmp_path / "keys", Role.OPERATOR)

    async def work() -> None:
        async with serving(tmp_path) as served, console(tmp_path) as typist:
            assert await typist.ask(f"auth {key.id} {key.secret.hex()}") == ["OK role=operator"]
            typist.type("monitor\n")
            assert await typist.line() == "OK a line ends it"
            keyring.revoke(tmp_path / "keys", key.id)
            served._authenticator.look_at_keys()
            assert (await typist.answer())[-1].startswith(f"ERR refused the key {key.id} was withdrawn")
            assert (await typist.ask("jobs"))[0].startswith("ERR refused who are you?")

    run(work)


def test_autosched_console_proves_its_key_without_sending_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, _ = keyring.make(tmp_path / "keys", Role.VIEWER)
    (tmp_path / "other.crt").write_text("no certificate")

    async def work() -> None:
        async with everywhere(tmp_path, monkeypatch) as (_, port):

            async def typed(*words: str) -> tuple[str, str]:
                shell = await asyncio.create_subprocess_exec(  # noqa: TID251 - its pipes are what is tested
                    sys.executable, "-m", "autosched", "console", *words,
                    env=os.environ | {keys.VARIABLE: key.line()}, stdin=PIPE, stdout=PIPE, stderr=PIPE,
                )  # fmt: skip
                out, err = await shell.communicate(b"jobs")
                return out.decode(), err.decode()

            there, trusted = f"tls://127.0.0.1:{port}", str(TLS_FILES / "tls.crt")
            plain, bare, wrong, right = await asyncio.gather(
                typed(f"unix:{tmp_path}/console.sock"),
                typed(there),
                typed(there, "--certificate", str(tmp_path / "other.crt")),
                typed(there, "--certificate", trusted),
            )
            goodbye = ["OK there are none", ".", "OK goodbye", "."]
            assert plain[0].splitlines()[1:] == goodbye
            assert "--certificate FILE" in bare[1]
            assert "is no certificate that can be read" in wrong[1]
            assert right[0].splitlines()[1:] == ["OK role=viewer", ".", *goodbye]

    run(work)


def test_a_console_on_the_network_needs_tls_and_a_key(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path, f'{TLS}[console]\nlisten = "0.0.0.0:0"\n'):
            raise AssertionError("it started")

    with pytest.raises(ConfigError, match=r"test:2: console\.listen is '0\.0\.0\.0:0', .* that needs TLS and keys"):
        config.parse('[console]\nlisten = "0.0.0.0:0"\n', "test")
    with pytest.raises(ConfigError, match=r"the console is at 0\.0\.0\.0, .* no key is in"):
        run(work)


def test_a_host_that_guesses_keys_is_banned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keyring.make(tmp_path / "keys", Role.VIEWER)

    async def work() -> None:
        async with everywhere(tmp_path, monkeypatch) as (_, port):
            typist = await encrypted(port)
            await typist.line()
            for _ in range(FAILURES_MAX):
                assert (await typist.ask("auth a b"))[0].startswith("ERR refused the key 'a' is not known")
            assert await typist.line() == ""
            with pytest.raises((ConnectionError, ssl.SSLError)):
                await encrypted(port)

    run(work)


def test_silent_remote_connections_are_closed_and_block_no_local_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "STRANGER_S", 0.2)
    monkeypatch.setattr(server, "HELLO_S", 0.2)
    monkeypatch.setattr(acceptor, "STRANGERS_MAX", 2)
    keyring.make(tmp_path / "keys", Role.VIEWER)

    async def work() -> None:
        async with everywhere(tmp_path, monkeypatch) as (_, port):
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]  # without even a handshake
            async with console(tmp_path) as typist:
                assert await typist.ask("jobs") == ["OK there are none"]
            for reader, writer in silent:
                assert await reader.read() == b""
                writer.close()
            monkeypatch.setattr(server, "HELLO_S", DEADLINE_S)
            greeting = ""
            while "role=none" not in greeting:  # on a busy machine it may be cut before it is greeted
                with suppress(OSError):
                    typist = await encrypted(port)
                    greeting = await typist.line()
            assert await typist.line() == ""  # and it sent nothing, either

    run(work)
