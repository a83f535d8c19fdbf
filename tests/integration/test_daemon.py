"""The daemon with scripted clients, over real sockets."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from autosched.backend import Network, Skipped
from autosched.errors import NotFound, Refused, RequestError
from autosched.model import JobLoad, JobState, Outcome, TaskInfo
from autosched.protocol import (
    AddArtifacts,
    AddRecord,
    ExplainJob,
    Explanation,
    GetOrder,
    JobList,
    JobOrder,
    ListDevices,
    ListJobs,
    ListSpans,
    PlanNetwork,
    ResultFile,
    SpanList,
    UnitList,
)
from integration.served import (
    BUILD,
    LANE,
    NETWORK,
    PROFILE,
    SHA256,
    Puppet,
    attached,
    load,
    record,
    run,
    serving,
    spec,
    undated,
    until,
    user,
)


def test_a_job_runs_from_submission_to_its_end(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            job, puppet = await attached(daemon, tmp_path, load(0, "host", "import"))
            order = await puppet.ask(GetOrder(), JobOrder)
            assert isinstance(order, JobOrder)
            assert (order.job, order.spec, order.network, order.records) == (job, spec(), None, 0)
            assert order.lanes >= 1
            assert order.devices == 1
            step = await puppet.steps.get()
            assert (step.stage, step.job, step.task, step.units) == ("import", job, 0, (LANE,))
            assert puppet.orders[step.id].cores
            await puppet.ask(PlanNetwork(network=NETWORK, trials=4))
            await puppet.end(step, PROFILE)
            step = await puppet.steps.get()
            assert step.units == ("cpu0",)
            for trial in range(4):
                puppet.measure(trial)
            await puppet.end(step, JobLoad(complete=True))
            view = await until(daemon, job, lambda view: JobState(view.state).ended)
            assert (view.state, view.trials, view.trials_total, view.estimate_s) == ("done", 4, 4, 0.002)
            assert undated(await daemon.records(job)) == [record(trial) for trial in range(4)]
            assert [(s.stage, s.outcome) for s in await daemon.spans()] == [("import", "done"), ("profile", "done")]
            assert "job 1 is done" in await puppet.stopped.get()
            daemon.close()

    run(work)


def test_two_jobs_never_hold_one_device_at_once(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            (first, one), (second, two) = [await attached(daemon, tmp_path, PROFILE) for _ in range(2)]
            step = await one.steps.get()
            view = await until(daemon, second, lambda view: view.state == "running")
            assert view.reason == f"waits for device:cpu, held by job {first}"
            explained = await daemon.link.call(ExplainJob(job=second), Explanation)
            assert "device:cpu" in " ".join(explained.lines)
            units = (await daemon.link.call(ListDevices(), UnitList)).units
            assert [(u.unit, u.state, u.job) for u in units if u.state != "free"] == [("cpu0", "busy", first)]
            assert two.steps.empty()
            await one.end(step)
            assert (await two.steps.get()).units == ("cpu0",)
            daemon.close()

    run(work)


def test_result_files_are_handed_over(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            job, puppet = await attached(daemon, tmp_path)
            await puppet.ask(AddArtifacts(files=(ResultFile("net.so", SHA256),)))
            with pytest.raises(NotFound, match="is not uploaded"):
                await puppet.ask(AddArtifacts(files=(ResultFile("other.so", "0" * 64),)))
            (artifact,) = await daemon.artifacts(job)
            path = await daemon.download(artifact, tmp_path)
            assert path.read_bytes() == (tmp_path / "model.onnx").read_bytes()
            daemon.close()

    run(work)


# What clients may not do ---------------------------------------------------------------------------------------------


def test_the_end_of_a_step_counts_once_and_only_from_its_client(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            _, mine = await attached(daemon, tmp_path)
            _, other = await attached(daemon, tmp_path, PROFILE)
            step = await mine.steps.get()
            with pytest.raises(Refused, match=f"stale step: {step.id} is not running for job 2"):
                await other.end(step)
            await mine.end(step)
            await mine.end(step)  # as if the first answer was lost: the end is sent again, and counts once
            with pytest.raises(Refused, match="stale step"):
                await mine.end(step, outcome=Outcome.FAILED)
            with pytest.raises(RequestError, match="has not lost a step"):
                await other.end(await other.steps.get(), outcome=Outcome.LOST)
            spans = await daemon.link.call(ListSpans(), SpanList)
            assert [(s.step, s.outcome) for s in spans.spans] == [(1, "done"), (2, "running")]
            daemon.close()

    run(work)


def test_a_trial_is_stored_once(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            job, puppet = await attached(daemon, tmp_path)
            step = await puppet.steps.get()
            for trial in (0, 1, 1, 0, 2):
                puppet.measure(trial)
            await puppet.end(step)
            assert [r.number for r in await daemon.records(job)] == [0, 1, 2]
            assert (await daemon.job(job)).trials == 3
            daemon.close()

    run(work)


def test_numbers_beyond_64_bits_are_refused(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            job, puppet = await attached(daemon, tmp_path)
            with pytest.raises(RequestError, match="out of range"):
                await puppet.ask(PlanNetwork(network=NETWORK, trials=2**63))
            with pytest.raises(RequestError, match="out of range"):
                await puppet.ask(AddRecord(record=msgspec.structs.replace(record(0), number=2**63)))
            await puppet.ask(AddRecord(record=record(0)))
            assert len(await daemon.records(job)) == 1
            daemon.close()

    run(work)


def test_a_network_of_thousands_of_operators_is_shown_truncated(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            job, puppet = await attached(daemon, tmp_path)
            tasks = tuple(TaskInfo(task=n, name="x" * 100, workload="w") for n in range(1, 1_500))
            skipped = tuple(Skipped("y" * 100, "no arithmetic") for _ in range(1_500))
            await puppet.ask(PlanNetwork(network=Network(tasks=tasks, skipped=skipped), trials=1))
            view = await daemon.job(job)
            assert 0 < len(view.tasks) <= 1_500
            daemon.close()

    run(work)


def test_a_list_is_truncated_to_the_size_of_an_answer(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            await asyncio.gather(*(daemon.submit(spec(output="o" * 4_096, target="t" * 2_000)) for _ in range(120)))
            listed = (await daemon.link.call(ListJobs(limit=500), JobList)).jobs
            assert 60 < len(listed) < 100
            assert [view.job for view in listed] == list(range(121 - len(listed), 121))
            daemon.close()

    run(work)


@pytest.mark.parametrize("tasks", [(0,), (1, 1)])
def test_a_network_with_impossible_numbers_is_refused(tmp_path: Path, tasks: tuple[int, ...]) -> None:
    async def work() -> None:
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            _, puppet = await attached(daemon, tmp_path)
            network = Network(tasks=tuple(TaskInfo(task=task, name="x", workload="x") for task in tasks))
            with pytest.raises(RequestError, match="numbered from 1"):
                await puppet.ask(PlanNetwork(network=network, trials=1))
            daemon.close()

    run(work)


def test_a_job_accepts_one_client_with_its_token(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            address = f"unix:{tmp_path}/api.sock"
            submitted = await daemon.submit(spec())
            for job, token, error in ((1, "wrong", Refused), (1, "é", Refused), (9, submitted.token, NotFound)):
                with pytest.raises(error):
                    await Puppet(BUILD).connect(address, job, token)
            await Puppet(BUILD).connect(address, submitted.job, submitted.token)
            with pytest.raises(Refused, match="has a client already"):
                await Puppet(BUILD).connect(address, submitted.job, submitted.token)
            await daemon.cancel(submitted.job)
            daemon.close()

    run(work)


def test_a_client_that_disconnects_loses_its_steps(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path, "[resources]\nlanes = 1\n"):
            daemon = await user(tmp_path)
            job, puppet = await attached(daemon, tmp_path)
            _, next_in_line = await attached(daemon, tmp_path)
            await puppet.steps.get()
            assert puppet.link is not None
            puppet.link.abort("pulled the plug")
            assert (await next_in_line.steps.get()).units == (LANE,)
            view = await until(daemon, job, lambda view: view.state == "failed")
            assert view.failure is not None
            assert "its client died" in view.failure.message
            assert (await daemon.spans())[0].outcome == "lost"
            daemon.close()

    run(work)


def test_a_step_past_its_deadline_is_revoked_and_still_holds_its_units(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path, "[scheduler]\nstep_timeout_s = 0.1\n"):
            daemon = await user(tmp_path)
            _, puppet = await attached(daemon, tmp_path, PROFILE)
            step = await puppet.steps.get()
            assert await puppet.revoked.get() == step.id
            units = (await daemon.link.call(ListDevices(), UnitList)).units
            assert [u.state for u in units if u.unit == "cpu0"] == ["stopping"]
            await puppet.end(step, outcome=Outcome.FAILED)
            units = (await daemon.link.call(ListDevices(), UnitList)).units
            assert [u.state for u in units if u.unit == "cpu0"] == ["free"]
            daemon.close()

    run(work)


def test_a_client_that_connects_too_late_fails_its_job(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path, "[scheduler]\nattach_timeout_s = 0.1\n"):
            daemon = await user(tmp_path)
            submitted = await daemon.submit(spec())
            view = await until(daemon, submitted.job, lambda view: view.state == "failed")
            assert "did not connect in time" in view.reason
            daemon.close()

    run(work)


def test_a_cancelled_job_stops_its_client(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            job, puppet = await attached(daemon, tmp_path)
            await puppet.steps.get()
            await daemon.cancel(job)
            await daemon.cancel(job)  # a second cancel is no error
            assert "cancelled" in await puppet.stopped.get()
            assert puppet.link is not None
            await puppet.link.wait_closed()  # this one does not end by itself
            view = await until(daemon, job, lambda view: "stopping" not in view.reason)
            assert (view.state, view.reason) == ("cancelled", "cancelled by its user")
            daemon.close()

    run(work)
