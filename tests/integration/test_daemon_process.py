"""The daemon as a process: its resources, the cost of its death, and its refusals to start."""

import asyncio
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from autosched.errors import AutoschedError
from autosched.protocol import DaemonInfo
from deadlines import DEADLINE_S
from integration.lab import Lab
from integration.served import Puppet, load, record, run, spec, undated, user

RSS_BYTES_MAX = 80_000_000
PROFILE = load(1, "device:cpu", "profile")


def serve(folder: Path, settings: str) -> subprocess.CompletedProcess[str]:
    """Tries to start a daemon that should not start."""
    file = folder / "wrong.toml"
    file.write_text(settings)
    command = [sys.executable, "-m", "autosched", "serve", "-c", str(file)]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)


def info(there: Lab) -> DaemonInfo:
    async def ask() -> DaemonInfo:
        daemon = await user(there.folder)
        try:
            return await daemon.info()
        finally:
            daemon.close()

    return asyncio.run(ask())


def test_the_daemon_stays_small_and_loads_no_heavy_modules(there: Lab) -> None:
    for job in [there.submit(trials=40, tasks=3) for _ in range(2)]:
        assert there.wait(job).state == "done"
    seen = info(there)
    assert seen.rss_bytes < RSS_BYTES_MAX
    mapped = Path(f"/proc/{seen.pid}/maps").read_text()
    assert "uvloop" in mapped
    assert not [name for name in ("libtvm", "numpy", "xgboost", "onnx") if name in mapped]


def test_a_second_daemon_for_the_same_folder_is_refused_and_names_the_first(there: Lab) -> None:
    answer = serve(there.folder, f'[daemon]\nstate_dir = "{there.folder}"\nsocket = "{there.folder}/other.sock"')
    assert answer.returncode == 5
    assert f"(process {info(there).pid}, at unix:{there.folder}/api.sock)" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_another_folder_with_the_same_socket_is_refused_too(there: Lab, tmp_path: Path) -> None:
    answer = serve(tmp_path, f'[daemon]\nstate_dir = "{tmp_path}/other"\nsocket = "{there.folder}/api.sock"')
    assert answer.returncode == 5
    assert "another daemon answers" in answer.stderr
    assert info(there).jobs_total == 0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("[daemon]\nsockte = 'x'", "wrong.toml:2: daemon.sockte: no such setting; did you mean 'socket'?"),
        ("[daemon]\nlisten = '0.0.0.0:0'", "that needs TLS and keys"),
        ("[daemon]\nstate_dir = '/proc/nowhere'", "the state folder /proc/nowhere cannot be written"),
        ("[[device]]\nname = 'a'\nkind = 'cpu'\ncores = [60000]", "a names core 60000; this process may use"),
    ],
)
def test_a_wrong_configuration_is_refused_in_one_sentence(tmp_path: Path, settings: str, words: str) -> None:
    if "state_dir" not in settings:
        settings += f"\n[daemon]\nstate_dir = '{tmp_path}/state'" if "[daemon]" not in settings else ""
    answer = serve(tmp_path, settings)
    assert answer.returncode == 2
    assert words in answer.stderr
    assert "Traceback" not in answer.stderr


def test_a_taken_port_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        answer = serve(tmp_path, f'[daemon]\nstate_dir = "{tmp_path}"\nlisten = "127.0.0.1:{port}"')
    assert answer.returncode == 2
    assert f"daemon.listen: 127.0.0.1:{port} cannot be used" in answer.stderr
    assert not (tmp_path / "api.sock").exists()


def test_acknowledged_records_survive_kill_9(there: Lab) -> None:
    acknowledged = 0

    async def measure_until_it_dies() -> None:
        nonlocal acknowledged
        daemon = await user(there.folder)
        submitted = await daemon.submit(spec())
        puppet = await Puppet(PROFILE).connect(there.address, submitted.job, submitted.token)
        trial = 0
        while True:
            step = await puppet.steps.get()
            for _ in range(7):
                puppet.measure(trial)
                trial += 1
            await puppet.end(step, PROFILE)
            acknowledged = trial
            if acknowledged == 70:
                there.end(signal.SIGKILL)

    with pytest.raises(AutoschedError):
        run(measure_until_it_dies)
    there.start()
    found = there.records(1)
    assert acknowledged >= 70
    assert len(found) >= acknowledged
    assert undated(found) == [record(trial) for trial in range(len(found))]
