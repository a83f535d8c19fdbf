"""A daemon of another version takes over from this one, and the other way round, with running clients of both."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

import autosched
from autosched.api.connection import Daemon
from autosched.protocol import PROTOCOL
from autosched.version import __version__
from deadlines import DEADLINE_S
from integration.lab import Lab, lab

FORMER = "0.0.9"
SERVING_S = 5.0
"""Maximum CPU seconds, since the machine may be busy."""
BOARD = '[[device]]\nname = "board"\nkind = "cpu"\n'
"""A device without cores: other load cannot disturb it, so that equal jobs have equal results."""
WORDS: dict[str, object] = {"trials": 16, "tasks": 1, "build_s": 0.15, "update_s": 0.1}


def change(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert text.count(before) == 1, f"{path} does not say {before!r} once"
    path.write_text(text.replace(before, after))


@pytest.fixture
def former(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with another build, with another minor protocol version and another format of the state."""
    folder = tmp_path_factory.mktemp("former")
    package = folder / "autosched"
    shutil.copytree(Path(autosched.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    major, minor = PROTOCOL
    change(
        package / "version.py",
        "from autosched_runtime.version import __version__ as __version__",
        f'__version__ = "{FORMER}"',
    )
    change(package / "protocol/method.py", f"PROTOCOL = ({major}, {minor})", f"PROTOCOL = ({major}, {minor + 1})")
    field = "    rounds_seen: int = 0\n"
    change(package / "core/state.py", field, f'{field}    mood: str = "good"\n')
    return folder


def told(there: Lab) -> tuple[str, list[str]]:
    """Returns the version that serves, and the ends of the steps."""

    async def ask(daemon: Daemon) -> tuple[str, list[str]]:
        return (await daemon.info()).version, [span.outcome for span in await daemon.spans()]

    return there.ask(ask)


def spent_s(there: Lab) -> float:
    """Returns the CPU seconds of the daemon so far."""
    assert there._process is not None
    times = psutil.Process(there._process.pid).cpu_times()
    return times.user + times.system


def made(log: Path) -> list[tuple[int, str]]:
    """Returns the steps in the clients' own logs."""
    return [(line["task"], line["stage"]) for line in map(json.loads, log.read_text().splitlines())]


def test_an_upgrade_and_a_downgrade_keep_all_jobs(
    former: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builds = {FORMER: str(former), __version__: os.environ.get("PYTHONPATH", "")}
    log, starts_s = tmp_path / "steps", []
    monkeypatch.setenv("PYTHONPATH", builds[FORMER])
    with lab(tmp_path, BOARD) as there:
        job = there.submit(**WORDS, log=str(log))
        pids = set[int]()
        for trials, version in ((2, __version__), (8, FORMER), (12, __version__)):
            there.wait(job, until="trials", trials=trials)
            assert told(there)[0] != version
            pids.update(there.clients(job))
            snapshot = [sys.executable, "-m", "autosched.daemon.recovery.maintenance", "snapshot", str(tmp_path)]
            subprocess.run(snapshot, check=True, timeout=DEADLINE_S)
            monkeypatch.setenv("PYTHONPATH", builds[version])
            there.end(signal.SIGTERM)
            there.start(BOARD)
            starts_s.append(spent_s(there))
            assert told(there)[0] == version
        assert there.wait(job).state == "done"
        assert len(pids) == 1, "the client is the first one, of the former version, to the end"
        assert set(told(there)[1]) == {"done"}, "not even an order was lost"
        other = there.submit(**WORDS, log=str(tmp_path / "undisturbed"))
        assert there.wait(other).state == "done"
        found = [[(r.number, r.candidate, r.latency_s) for r in there.records(one)] for one in (job, other)]
        assert found[0] == found[1]
        assert made(log) == made(tmp_path / "undisturbed")
    assert max(starts_s) < SERVING_S
    passed_over = (tmp_path / "daemon.log").read_text().count("another version of autosched made it")
    assert passed_over >= 3, "each of them replays everything: the other's state has another shape"
