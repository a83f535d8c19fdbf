"""Orders that an agent executes or refuses."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from autosched.agent.agent import Agent, machine_name
from autosched.agent.host_lease import HostLease
from autosched.agent.owner_watch import OwnerBack, OwnerWatch
from autosched.errors import NotFound, Refused, RequestError, WireError
from autosched.model import Pool, Unit
from autosched.protocol import Done, KillHostClient, LeaveHost, Method, ProbedUnit, ProbeUnit, StartHostClient, Stop
from autosched.wire.link import Link
from deadlines import DEADLINE_S

POOLS = (Pool("host", (Unit("host/0"),)), Pool("device:cpu", (Unit("cpu0", (0,)), Unit("board"))))
START = StartHostClient(job=1, token="token", cache_bytes_max=0)


def obeys(folder: Path, method: Method, *, valid: bool = True, hooks: Mapping[str, Sequence[str]] | None = None) -> Any:
    """Returns the answer to one order."""

    async def ask() -> Any:
        lease = cast(HostLease, SimpleNamespace(valid=valid))
        agent = Agent("unix:/nowhere", "lab2", POOLS, folder, lease, hooks or {}, DEADLINE_S)
        return await agent._obey(method)

    return asyncio.run(asyncio.wait_for(ask(), DEADLINE_S))


def test_no_client_starts_without_a_lease(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="host lab2 starts no clients: its lease is over"):
        obeys(tmp_path, START, valid=False)
    assert not (tmp_path / "jobs").exists()


def test_a_client_that_is_not_there_is_dead_already(tmp_path: Path) -> None:
    assert obeys(tmp_path, KillHostClient(client="0" * 16, reason="it is given up")) is not None


def test_an_order_for_clients_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WireError, match="is not asked for Stop"):
        obeys(tmp_path, Stop(reason="a mistake"))


def test_a_device_is_treated_and_measured(tmp_path: Path) -> None:
    hooks = {"cpu0": ("sh", "-c", f"echo $AUTOSCHED_DEVICE > {tmp_path}/rebooted")}
    found = obeys(tmp_path, ProbeUnit(unit="cpu0"), hooks=hooks)
    assert isinstance(found, ProbedUnit)
    assert found.core_s is not None
    assert found.memory_s is not None
    assert (tmp_path / "rebooted").read_text().strip() == "cpu0"
    (tmp_path / "rebooted").unlink()
    assert isinstance(obeys(tmp_path, ProbeUnit(unit="cpu0", reboots=False), hooks=hooks), ProbedUnit)
    assert not (tmp_path / "rebooted").exists()
    assert obeys(tmp_path, ProbeUnit(unit="board")) == ProbedUnit(), "it has no cores to measure"


def test_a_fault_of_a_device_is_reported(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="its reboot hook ended with exit code 3"):
        obeys(tmp_path, ProbeUnit(unit="board"), hooks={"board": ("sh", "-c", "exit 3")})
    with pytest.raises(NotFound, match="host lab2 has no unit gpu7"):
        obeys(tmp_path, ProbeUnit(unit="gpu7"))


def test_a_machine_is_returned_when_its_owner_is_back(tmp_path: Path) -> None:
    """Nothing may start there while clients end, and the daemon learns since when others used the machine."""
    told: list[LeaveHost] = []

    class Line:
        async def call(self, method: Method, kind: type, *, timeout_s: float) -> Done:
            assert isinstance(method, LeaveHost)
            told.append(method)
            return Done()

    class Owner:
        async def back(self) -> OwnerBack:
            return OwnerBack(1.25, asyncio.get_running_loop().time() - 0.4)

    async def story() -> None:
        lease = cast(HostLease, SimpleNamespace(valid=True))
        agent = Agent("unix:/nowhere", "lab2", POOLS, tmp_path, lease, {}, DEADLINE_S)
        agent._link = cast(Link, Line())
        await agent._give_back_to(cast(OwnerWatch, Owner()))
        with pytest.raises(
            Refused, match=r"starts no clients: its owner is back: other programs use 1\.2 of its cores"
        ):
            await agent._obey(START)

    asyncio.run(asyncio.wait_for(story(), DEADLINE_S))
    assert [(leave.ended, leave.disturbed_s >= 0.4) for leave in told] == [(False, False), (True, True)]


def test_a_machine_keeps_its_name(tmp_path: Path) -> None:
    name = machine_name(tmp_path)
    assert machine_name(tmp_path) == name
    (tmp_path / "machine").write_text("torn")
    assert len(machine_name(tmp_path)) == 32
