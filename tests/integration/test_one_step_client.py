"""A measurement by hand holds the device's lease: it waits for jobs, and jobs wait for it."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from autosched.api.connection import Daemon
from autosched.api.on_demand import connected
from autosched.client.one_step_client import run_under_lease
from autosched.errors import JobCancelled, RequestError
from autosched.model import JobSpec, TaskLoad
from autosched.protocol import GetJob, JobList, JobView, ListDevices, ListJobs, StartStep, UnitList
from integration.lab import Lab, lab

SPEC = JobSpec(name="by-hand", model="0" * 64, backend="none", external=True)
LOAD = TaskLoad(task=0, resources_next=("device:cpu",), stage_next="evaluate", timeout_s=60)


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("lab")) as running:
        yield running


async def latest(daemon: Daemon) -> JobView:
    return (await daemon.link.call(ListJobs(), JobList)).jobs[-1]


async def holders(daemon: Daemon) -> dict[str, int | None]:
    return {unit.unit: unit.job for unit in (await daemon.link.call(ListDevices(), UnitList)).units}


def test_work_is_done_under_a_lease_on_the_devices_cores(there: Lab) -> None:
    async def run() -> None:
        async with connected(there.address) as daemon:

            async def work(order: StartStep) -> tuple[int, ...]:
                assert (await holders(daemon))["cpu0"] == order.step.job
                return order.cores

            cores = await run_under_lease(daemon.link, there.address, SPEC, LOAD, work)
            units = (await daemon.link.call(ListDevices(), UnitList)).units
            assert cores == next(unit.cores for unit in units if unit.unit == "cpu0")
            view = await latest(daemon)
            assert (view.name, view.state) == ("by-hand", "done")
            assert (await holders(daemon))["cpu0"] is None

    asyncio.run(run())


def test_a_failure_frees_the_device_and_is_raised_here(there: Lab) -> None:
    async def run() -> None:
        async with connected(there.address) as daemon:

            async def work(_order: StartStep) -> None:
                raise RequestError("the module does not load")

            with pytest.raises(RequestError, match="does not load"):
                await run_under_lease(daemon.link, there.address, SPEC, LOAD, work)
            view = await latest(daemon)
            assert view.state == "failed"
            assert view.failure is not None
            assert view.failure.message == "the module does not load"
            assert (await holders(daemon))["cpu0"] is None

    asyncio.run(run())


def test_cancelling_the_job_stops_the_work(there: Lab) -> None:
    async def run() -> None:
        async with connected(there.address) as daemon, connected(there.address) as other:
            stopped = asyncio.Event()

            async def work(order: StartStep) -> None:
                try:  # the order to stop may come before the answer
                    await other.cancel(order.step.job)
                    await asyncio.Event().wait()
                finally:
                    stopped.set()

            with pytest.raises(JobCancelled):
                await run_under_lease(daemon.link, there.address, SPEC, LOAD, work)
            assert stopped.is_set()
            assert (await latest(daemon)).state == "cancelled"

    asyncio.run(run())


def test_a_cancelled_request_leaves_the_queue(there: Lab, tmp_path: Path) -> None:
    holder = there.submit(trials=8, tasks=1, hang_stage="profile")

    async def run() -> None:
        async with connected(there.address) as daemon, connected(there.address) as other:
            while (await holders(daemon))["cpu0"] != holder:
                await daemon.job(holder, since=(await daemon.job(holder)).version, wait_s=1)

            async def work(_order: StartStep) -> None:
                raise AssertionError("the device is held by another")

            waiting: asyncio.Queue[int] = asyncio.Queue()
            visiting = asyncio.ensure_future(
                run_under_lease(daemon.link, there.address, SPEC, LOAD, work, waiting=waiting.put_nowait)
            )
            job = await waiting.get()
            assert (await other.link.call(GetJob(job=job), JobView)).state == "running"
            visiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await visiting
            assert (await other.job(job)).state == "cancelled"

    asyncio.run(run())
    there.cancel(holder)
