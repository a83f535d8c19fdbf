"""The jobs of users run apart: they see no key, no other job, no process, no network, and nothing of them stays."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from autosched.daemon.access import keyring
from autosched.errors import Refused
from autosched.launch import sandbox
from autosched.protocol.roles import Role
from autosched.wire.whereabouts import WHEREABOUTS
from deadlines import until
from hostile import attack_of_a_job
from hostile.of_key import submit_with
from integration.lab import BOARD, Lab, ended, lab
from integration.lender import Lender, hosts_of, tls_address
from lent_host import boards, lane, tls
from packages import install

pytestmark = pytest.mark.skipif(bool(sandbox.unavailable()), reason=sandbox.unavailable())
ATTACK = {"backend": "attacker", "trials": 20}
SETTINGS = f'listen = "127.0.0.1:0"\n{BOARD}'


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    folder = tmp_path / "lab"
    folder.mkdir()
    theirs = install(tmp_path / "packages", "autosched.backends", {"attacker": ""}, attacker="attacker:Attacker")
    monkeypatch.setenv("PYTHONPATH", str(theirs))
    monkeypatch.setenv("AUTOSCHED_KEY", f"user:env:{'ab' * 32}")
    monkeypatch.setenv("PGPASSWORD", "secret")
    with lab(folder, SETTINGS) as running:
        known = json.loads((folder / WHEREABOUTS).read_text())
        page = int(known["page"].rstrip("/").rpartition(":")[2])
        module = attack_of_a_job.backend(str(folder), page, [known["pid"], os.getpid()])
        (theirs / "attacker.py").write_text(module)
        monkeypatch.delenv("AUTOSCHED_KEY")
        yield running


def attempts(there: Lab, job: int) -> dict[str, str]:
    """The attempts that succeeded."""
    text = (there.folder / f"jobs/{job}/attempts.log").read_text()
    return dict(json.loads(text.removeprefix(attack_of_a_job.MARK)))


def escaped() -> list[int]:
    """Processes that a job has left behind without a trace of it in their environment."""
    return [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if re.search(rb"\0escaped-child\0", _content(path))
    ]


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_a_users_job_works_and_gets_nothing_but_its_own(there: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    keyring.make(there.folder / "keys", Role.OPERATOR, "boss")
    eve, _ = keyring.make(there.folder / "keys", Role.USER, "eve")
    other = there.submit(trials=4)
    there.wait(other)
    job = submit_with(there, eve, **ATTACK)
    view = there.wait(job)
    assert (view.state, view.failure) == ("done", None)
    assert view.trials == 20
    allowed = {"read jobs": f"['{job}']", "see the process 1": ""}
    assert {name: got for name, got in attempts(there, job).items() if allowed.get(name) != got} == {}
    until(lambda: not escaped(), "nothing of the job is left")


def test_an_operators_job_runs_as_the_daemon_does(there: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    boss, _ = keyring.make(there.folder / "keys", Role.OPERATOR, "boss")
    for owner in ("ours", "boss"):
        if owner == "ours":
            job = there.submit(trials=6_000, profile_s=0.2)
        else:
            job = submit_with(there, boss, backend="mock", trials=6_000, options={"profile_s": 0.2})
        there.wait(job, "trials", 1)
        (client,) = there.clients(job)
        assert os.readlink(f"/proc/{client}/ns/pid") == os.readlink("/proc/self/ns/pid")
        there.cancel(job)


def test_a_users_job_survives_its_daemon(there: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    eve, _ = keyring.make(there.folder / "keys", Role.USER, "eve")
    job = submit_with(there, eve, **ATTACK | {"trials": 60}, options={"profile_s": 0.05})
    there.wait(job, "trials", 4)
    clients = there.clients(job)
    there.end(9)  # type: ignore[arg-type]
    there.start(SETTINGS)
    view = there.wait(job)
    assert ended(view)
    assert (view.state, view.trials) == ("done", 60)
    assert clients
    until(lambda: not escaped() and not there.clients(job), "nothing of the job is left")


def test_a_cancelled_job_leaves_no_process(there: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    eve, _ = keyring.make(there.folder / "keys", Role.USER, "eve")
    job = submit_with(there, eve, **ATTACK | {"trials": 6_000}, options={"profile_s": 0.2})
    there.wait(job, "trials", 1)
    assert escaped()
    there.cancel(job)
    until(lambda: not escaped() and not there.clients(job), "nothing of the job is left")


def test_a_users_job_on_a_lent_host_gets_neither_its_agents_key_nor_its_network(
    there: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there.end(15)  # type: ignore[arg-type]
    there.start(tls() + lane() + BOARD)
    _, secret = keyring.make(there.folder / "keys", Role.AGENT, "lab2")
    eve, _ = keyring.make(there.folder / "keys", Role.USER, "eve")
    lender = Lender(there)
    lender.settings, lender.address = lane() + boards(1, "far"), tls_address(there)
    lender.start("--key", str(secret))
    try:
        until(lambda: lender.is_("here"), "the host joins")
        job = submit_with(there, eve, **ATTACK, device="far", options={"profile_s": 0.05})
        view = there.wait(job)
        assert (view.state, view.failure, view.trials) == ("done", None, 20)
        assert hosts_of(there, job) == {"lab2"}
        (told,) = lender.jobs.glob("*/attempts.log")
        done = dict(json.loads(told.read_text().removeprefix(attack_of_a_job.MARK)))
        assert {name: got for name, got in done.items() if not name.startswith("see the process 1")} == {}
        until(lambda: not escaped(), "nothing of the job is left")
    finally:
        lender.end()


def test_where_programs_cannot_run_apart_it_is_told_or_refused(
    there: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    eve, _ = keyring.make(there.folder / "keys", Role.USER, "eve")
    there.end(15)  # type: ignore[arg-type]
    monkeypatch.setenv("PATH", str(tmp_path))
    there.start(SETTINGS)
    assert any("bubblewrap is not installed" in words for words in there.ask(lambda one: one.info()).warnings)
    there.end(15)  # type: ignore[arg-type]
    there.start(f'sandbox = "require"\n{SETTINGS}')
    assert not there.ask(lambda one: one.info()).warnings
    with pytest.raises(Refused, match="bubblewrap is not installed"):
        submit_with(there, eve, **ATTACK)
    assert there.wait(there.submit(trials=2)).state == "done"
