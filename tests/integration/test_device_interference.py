"""Interference is kept away from a device, and detected where it occurs."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from autosched.api.connection import Daemon, off_devices
from autosched.backend import Network
from autosched.daemon.devices.device_monitor import LEARNED_FROM
from autosched.model import DeviceNote, JobLoad, Purpose, TaskInfo
from autosched.protocol import GetOrder, JobOrder, JobView, ListDevices, PlanNetwork, TagRecords, UnitList
from deadlines import DEADLINE_S
from integration.lab import Lab, ended, lab
from integration.served import Puppet, load, run, serving, spec, user

CORES = sorted(os.sched_getaffinity(0))
HOST, DEVICE = CORES[0], CORES[-1]
TWO_CORES = pytest.mark.skipif(len(CORES) < 2, reason="a device of its own needs a second core")
SETTINGS = (
    f'[resources]\nhost_cores = [{HOST}]\n[[device]]\nname = "cpu0"\nkind = "cpu"\ncores = [{DEVICE}]\n'
    "[guard]\nsentinel_interval_s = 0.001\n"
)
SPIN = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nprint(flush=True)\nwhile True: pass"
PROFILE = load(1, "device:cpu", "profile")
NETWORK = Network(tasks=(TaskInfo(task=1, name="conv", workload="w"),))


def health(there: Lab) -> dict[str, str]:
    async def ask(daemon: Daemon) -> dict[str, str]:
        return {unit.unit: unit.health for unit in await daemon.units()}

    return there.ask(ask)


# Pinning --------------------------------------------------------------------------------------------------------------


def allowed(pid: int) -> dict[int, set[int]]:
    """Returns the cores on which each thread of a process may run."""
    found = {}
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            found[int(thread)] = os.sched_getaffinity(int(thread))
        except OSError:
            continue
    return found


def family(there: Lab) -> list[int]:
    """Returns the daemon and all processes of its jobs."""
    assert there._process is not None
    pids, mark = [there._process.pid], f"AUTOSCHED_JOB_DIR={there.folder}".encode()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes():
                pids.append(int(entry.name))
        except OSError:
            continue
    return pids


def running(there: Lab, job: int, words: str) -> JobView:
    """Waits until the job does this."""

    async def ask(daemon: Daemon) -> JobView:
        async with asyncio.timeout(DEADLINE_S):
            async for view in daemon.follow(job, wait_s=5.0):
                if words in view.reason or ended(view):
                    return view
        raise AssertionError

    return there.ask(ask)


@TWO_CORES
@pytest.mark.parametrize(
    ("stage", "words"),
    [
        ("import", "importing"), ("select", "choosing"), ("build", "building"), ("profile", "measuring"),
        ("update", "learning"), ("compile", "compiling"), ("evaluate", "evaluating"),
    ],
)  # fmt: skip
def test_no_thread_of_daemon_or_client_may_run_on_the_device(stage: str, words: str, tmp_path: Path) -> None:
    with lab(tmp_path, SETTINGS) as there:
        job = there.submit(tasks=1, trials=2, hang_stage=stage)
        assert words in running(there, job, words).reason
        pids = family(there)
        assert len(pids) >= 2, "daemon and client"
        deadline = time.monotonic() + DEADLINE_S
        while True:  # a sentinel's thread ends soon; no other may be there
            there_too = [tid for pid in pids for tid, cores in allowed(pid).items() if DEVICE in cores]
            if not there_too:
                break
            assert time.monotonic() < deadline, there_too


@TWO_CORES
def test_a_client_gets_the_cores_it_may_use(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path, SETTINGS):
            daemon = await user(tmp_path)
            submitted = await daemon.submit(spec())
            puppet = await Puppet(PROFILE).connect(f"unix:{tmp_path}/api.sock", submitted.job, submitted.token)
            order = await puppet.ask(GetOrder(), JobOrder)
            assert isinstance(order, JobOrder)
            assert order.host_cores == (HOST,)
            daemon.close()

    run(work)


@TWO_CORES
def test_a_command_that_follows_a_job_stays_off_the_device(tmp_path: Path) -> None:
    async def look(daemon: Daemon) -> tuple[set[int], set[int]]:
        async with off_devices(daemon):
            meanwhile = set[int]().union(*allowed(os.getpid()).values())
        return meanwhile, os.sched_getaffinity(0)

    with lab(tmp_path, SETTINGS) as there:
        meanwhile, afterwards = there.ask(look)
    assert meanwhile == set(CORES) - {DEVICE}
    assert afterwards == set(CORES)


# Other load -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def intruder() -> Iterator[None]:
    """A foreign program that is busy on the device's core."""
    with subprocess.Popen([sys.executable, "-c", SPIN, str(DEVICE)], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        yield
        child.kill()


@TWO_CORES
@pytest.mark.usefixtures("intruder")
def test_candidates_measured_under_other_load_are_tagged_and_measured_again(tmp_path: Path) -> None:
    with lab(tmp_path, SETTINGS) as there:
        job = there.submit(tasks=1, trials=4, profile_s=0.25)
        view = there.wait(job)
        records = there.records(job)
        said = health(there)
    assert (view.state, view.trials, view.trials_total) == ("done", 4, 4)
    assert [(r.number, r.purpose) for r in records if "other programs used" not in r.disturbed] == []
    assert view.disturbed_records == len(records)
    assert {record.purpose for record in records} == set(Purpose) - {Purpose.NETWORK, Purpose.KNOWN}
    trials = {record.candidate for record in records if record.purpose is Purpose.TRIAL}
    assert {record.candidate for record in records if record.purpose is Purpose.AGAIN} <= trials
    assert "other programs used" in said["cpu0"]
    assert said["host/0"] == ""


@TWO_CORES
def test_finals_compare_the_best_of_each_task_with_the_default(tmp_path: Path) -> None:
    with lab(tmp_path, SETTINGS) as there:
        job = there.submit(tasks=3, trials=24)
        view = there.wait(job)
        records = there.records(job)
    assert view.state == "done"
    for task in view.tasks:
        finals = [r for r in records if r.task == task.task and r.purpose in (Purpose.FINAL, Purpose.DEFAULT)]
        assert finals[-1].purpose is Purpose.DEFAULT
        assert task.default_s == finals[-1].best_s
        assert task.best_s == min(r.best_s or 1.0 for r in finals)
    assert sum(task.trials for task in view.tasks) == view.trials == 24


def test_finals_are_not_held_again_by_a_client_that_comes_later(tmp_path: Path) -> None:
    with lab(tmp_path) as there:
        job = there.submit(tasks=2, trials=8, hang_stage="compile")
        running(there, job, "compiling")
        before = len(there.records(job))
        there.kill_client(job)
        compiles = []
        while [span.outcome for span in compiles] != ["lost", "running"]:
            compiles = [span for span in there.spans() if span.stage == "compile"]
        assert len(there.records(job)) == before


# Drift ----------------------------------------------------------------------------------------------------------------


def test_a_drifting_device_is_reported_and_its_records_are_tagged(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path, "[guard]\nsentinel_interval_s = 0.0\n"):
            daemon = await user(tmp_path)
            submitted = await daemon.submit(spec())
            puppet = await Puppet(PROFILE).connect(f"unix:{tmp_path}/api.sock", submitted.job, submitted.token)
            await puppet.ask(PlanNetwork(network=NETWORK, trials=100))
            paces = [1e-3] * LEARNED_FROM + [1.3e-3] * 2
            for trial, core_s in enumerate(paces):
                step = await puppet.steps.get()
                assert puppet.orders[step.id].sentinel
                puppet.measure(trial, "cpu0")
                note = DeviceNote(core_s, 5e-3, 0.0, 1.0)
                await puppet.end(step, PROFILE if trial < len(paces) - 1 else None, device=note)
            told = await puppet.tags.get()
            reason = "the device was 30 % slower than its baseline (core)"
            assert told == TagRecords(numbers=(LEARNED_FROM - 1, LEARNED_FROM), reason=reason)
            records = await daemon.records(submitted.job)
            assert [record.number for record in records if record.disturbed == reason] == list(told.numbers)
            assert (await daemon.job(submitted.job)).disturbed_records == 2
            units = (await daemon.link.call(ListDevices(), UnitList)).units
            assert [unit.unit for unit in units if unit.health.startswith("drifting for")] == ["cpu0"]
            daemon.close()

    run(work)


def test_a_client_tags_records_of_its_own_job_only(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            submitted = await daemon.submit(spec())
            puppet = await Puppet(PROFILE).connect(f"unix:{tmp_path}/api.sock", submitted.job, submitted.token)
            step = await puppet.steps.get()
            puppet.measure(0, "cpu0")
            assert puppet.link is not None
            puppet.link.notify(TagRecords(numbers=(0, 1, 2**62), reason="load"))
            await puppet.end(step, JobLoad(complete=True))
            assert [record.disturbed for record in await daemon.records(submitted.job)] == ["load"]
            assert (await daemon.job(submitted.job)).disturbed_records == 1
            daemon.close()

    run(work)
