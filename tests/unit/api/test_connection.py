import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from autosched.api import on_demand
from autosched.api.on_demand import connected, kind_of_cores, start_on_demand, tail
from autosched.errors import DaemonUnreachable, RequestError
from autosched.protocol import UnitView
from processes import is_dead


def starts(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """Sets the program that is started instead of a daemon."""
    monkeypatch.setattr(on_demand, "COMMAND", [sys.executable, "-c", program])


def test_a_private_daemon_that_dies_is_explained_by_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    starts(monkeypatch, "import sys; print('port taken', file=sys.stderr); sys.exit(4)")
    with pytest.raises(DaemonUnreachable, match=r"(?s)ended with exit code 4.*port taken.*autosched doctor"):
        asyncio.run(start_on_demand(f"unix:{tmp_path}/s", tmp_path / "state"))


def test_a_private_daemon_that_never_answers_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    starts(monkeypatch, "import os, time; print('process', os.getpid(), flush=True); time.sleep(60)")
    with pytest.raises(DaemonUnreachable, match="does not answer"):
        asyncio.run(start_on_demand(f"unix:{tmp_path}/s", tmp_path / "state", timeout_s=0.3))
    pid = int((tmp_path / "state/daemon.log").read_text().split()[1])
    assert not is_dead(pid)
    os.kill(pid, signal.SIGKILL)


def test_a_private_daemon_gets_its_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    starts(monkeypatch, "import sys; sys.exit(' '.join(sys.argv[1:]))")
    with pytest.raises(DaemonUnreachable, match="--policy lifo"):
        asyncio.run(start_on_demand(f"unix:{tmp_path}/s", tmp_path / "state", ["--policy", "lifo"]))


def test_a_state_folder_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DaemonUnreachable, match=r"none can be started.*XDG_STATE_HOME"):
        asyncio.run(start_on_demand(f"unix:{tmp_path}/s", tmp_path / "file" / "state"))


def unit(name: str, kind: str, cores: int) -> UnitView:
    return UnitView(unit=name, pools=("host", f"device:{kind}"), cores=tuple(range(cores)), state="free")


def test_kind_of_device_follows_the_number_of_cores() -> None:
    units = [unit("a", "cpu", 1), unit("b", "big", 4), unit("c", "mixed", 4), unit("d", "mixed", 2)]
    assert kind_of_cores(units, "cpu", None) == "cpu"
    assert kind_of_cores(units, "cpu", 1) == "cpu"
    assert kind_of_cores(units, "cpu", 4) == "big"
    with pytest.raises(RequestError, match=r"no device .* has 2 cores; there are: big \(4 cores\), cpu \(1 core\)"):
        kind_of_cores(units, "cpu", 2)


def test_more_cores_than_there_are_start_no_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOSCHED_STATE_DIR", str(tmp_path))
    monkeypatch.delenv("AUTOSCHED_HOST", raising=False)

    async def connect() -> None:
        async with connected(cores=10_000):
            pass

    with pytest.raises(RequestError, match=r"10000 cores are asked for, and this process may use \d+"):
        asyncio.run(connect())


def test_the_reported_end_of_a_log_is_short(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"line {i} {'x' * 1000}\n" for i in range(100)))
    lines = tail(log).splitlines()
    assert len(lines) == on_demand.LOG_TAIL_LINES
    assert lines[-1].startswith("  line 99 ")
    assert max(map(len, lines)) <= on_demand.LOG_LINE_CHARS + 2
    assert "No such file" in tail(tmp_path / "none")
