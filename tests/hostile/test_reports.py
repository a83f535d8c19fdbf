"""Clients report what they want: no report of one user harms the jobs of another."""

import asyncio
import contextlib
from pathlib import Path

import pytest
from msgspec.structs import replace

from autosched.api.connection import Daemon
from autosched.backend import Network
from autosched.daemon.access import keyring
from autosched.errors import RequestError
from autosched.model import Failure, JobLoad, TaskInfo
from autosched.protocol import AddRecord, Done, ListDevices, PlanNetwork, UnitList
from autosched.protocol.roles import Role
from autosched.wire import keys
from integration.served import BUILD, PROFILE, TCP, Puppet, record, run, serving, spec, user

TASK = TaskInfo(task=1, name="conv", workload="w", flops=2e9)


async def hostile(served_address: str, folder: Path, monkeypatch: pytest.MonkeyPatch, key: keys.Key) -> Puppet:
    """A job of the holder of a key, whose client says what the test wants; it has begun to measure."""
    monkeypatch.setenv(keys.VARIABLE, key.line())
    daemon = await Daemon.connect(served_address)
    monkeypatch.delenv(keys.VARIABLE)
    job = await daemon.submit(spec(external=True))
    daemon.close()
    await daemon.link.wait_closed()
    puppet = await Puppet(BUILD).connect(f"unix:{folder}/api.sock", job.job, job.token)
    await puppet.ask(PlanNetwork(network=Network(tasks=(TASK,)), trials=100), Done)
    await puppet.end(await puppet.steps.get(), load=PROFILE)
    return puppet


@pytest.mark.parametrize("latency_s", [1e-9, 1e-6], ids=["a nanosecond", "more than the cores can"])
def test_an_impossible_latency_is_refused(latency_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    eve, _ = keyring.make(tmp_path / "keys", Role.USER, "eve")

    async def work() -> None:
        async with serving(tmp_path, TCP) as served:
            (await user(tmp_path)).close()
            puppet = await hostile(served._addresses[1], tmp_path, monkeypatch, eve)
            step = await puppet.steps.get()
            invented = replace(record(0), latency_s=(1.0, latency_s), unit=step.units[0])
            with pytest.raises(RequestError, match="is impossible"):
                await puppet.ask(AddRecord(record=invented))
            honest = replace(invented, latency_s=(1e-3,))
            await puppet.ask(AddRecord(record=honest))

    run(work)


def test_invented_failures_block_nothing_for_others_and_take_no_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    eve, _ = keyring.make(tmp_path / "keys", Role.USER, "eve")

    async def work() -> None:
        async with serving(tmp_path, TCP) as served:
            daemon = await user(tmp_path)
            victim = (await daemon.submit(spec())).job
            for batch in range(4):
                puppet = await hostile(served._addresses[1], tmp_path, monkeypatch, eve)
                step = await puppet.steps.get()
                for trial in range(8):
                    made = replace(record(trial), candidate=b"%d" % (trial // 2), unit=step.units[0])
                    crashed = replace(made, latency_s=(), failure=Failure.RUN_CRASH, detail="invented")
                    await puppet.ask(AddRecord(record=crashed if batch or trial % 2 else made))
                await puppet.end(step, load=JobLoad(complete=True))
            units = {unit.unit: unit for unit in (await daemon.link.call(ListDevices(), UnitList)).units}
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(5.0):
                    while units["cpu0"].drained:
                        assert "quarantined" not in units["cpu0"].drained
                        await asyncio.sleep(0.05)
                        units = {unit.unit: unit for unit in (await daemon.link.call(ListDevices(), UnitList)).units}
            assert not units["cpu0"].drained
            blamed = served._services.attribution.blame
            assert not any(case.blocks("uid 0") for case in blamed.cases.values())
            assert (await daemon.job(victim)).failure is None
            daemon.close()

    run(work)
