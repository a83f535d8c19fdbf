"""Agents as tasks of a Dask cluster: Dask restarts them, and the daemon ends them."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autosched.daemon.access import keyring
from autosched.protocol.roles import Role
from deadlines import until
from integration.lab import Lab, lab
from integration.lender import LONG, SETTINGS, check_records, hosts, hosts_of
from lent_host import boards, lane, tls

distributed = pytest.importorskip("distributed")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Two workers with one agent each, as processes under their nannies."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "states"))
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address=":0",
        resources={"agent": 1}, local_directory=str(tmp_path / "dask"), silence_logs=False,
    ) as made:  # fmt: skip
        yield made


@pytest.fixture
def settings(tmp_path: Path, cluster: Any) -> str:
    """Settings of a daemon with agents on the cluster."""
    folder = tmp_path
    _, key = keyring.make(folder / "keys", Role.AGENT, "dask")
    (folder / "agent.toml").write_text(lane() + boards(1))
    return (
        f'{tls("127.0.0.1:0")}{SETTINGS}[launcher]\nkind = "dask"\nscheduler = "{cluster.scheduler_address}"\n'
        f'daemon = "unix:{folder}/api.sock"\nkey = "{key}"\nagents = 2\nresource = "agent"\n'
        f'settings = "{folder}/agent.toml"\n'
    )


@pytest.fixture
def there(tmp_path: Path, settings: str) -> Iterator[Lab]:
    with lab(tmp_path, settings) as made:
        until(lambda: here(made) == ["dask-0", "dask-1"], "both agents lend their host")
        yield made


def here(there: Lab) -> list[str]:
    return sorted(host.host for host in hosts(there) if host.state == "here")


def workers(cluster: Any) -> list[int]:
    """Process ids of the present workers."""
    with distributed.Client(cluster) as client:
        return sorted(client.run(os.getpid).values())


def test_dask_starts_agents_again_and_the_daemon_ends_them(
    there: Lab, cluster: Any, settings: str, tmp_path: Path
) -> None:
    jobs = [there.submit(**{**LONG, "trials": 160, "seed": number}) for number in range(3)]
    until(lambda: {host for job in jobs for host in hosts_of(there, job)} == {"", "dask-0", "dask-1"}, "all work")
    before = workers(cluster)
    os.kill(before[0], signal.SIGKILL)
    began_at = time.monotonic()
    until(lambda: len(here(there)) < 2, "its agent ends with the worker")
    until(lambda: here(there) == ["dask-0", "dask-1"], "its agent runs again")
    assert time.monotonic() - began_at < 50.0, "10 s on a quiet machine"
    for job in jobs:
        assert there.wait(job).state == "done"
        check_records(there, job, 160)

    there.end(signal.SIGKILL)
    agents = here_of(tmp_path)
    there.start(settings)
    until(lambda: here(there) == ["dask-0", "dask-1"], "the agents find the next daemon")
    assert here_of(tmp_path) == agents, "the next engine takes them over"

    there.end(signal.SIGINT)
    until(lambda: not here_of(tmp_path), "the agents end with a daemon that is stopped for good")
    assert len(workers(cluster)) == 2, "the cluster goes on"


def here_of(folder: Path) -> list[int]:
    """Process ids of agents."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            continue
        if b"--until-stdin-closes" in words and str(folder).encode() in words:
            found.append(int(entry.name))
    return sorted(found)
