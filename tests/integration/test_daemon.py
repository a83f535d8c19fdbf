"""The daemon with users and with clients that do exactly what a test says, over real sockets."""

import asyncio
import os
import signal
import sqlite3
import stat
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import msgspec
import pytest

from autosched import config
from autosched.backend import Network, Skipped
from autosched.daemon import sessions
from autosched.daemon.journal import JournalDamaged
from autosched.daemon.main import Daemon as Served
from autosched.errors import AutoschedError, ConfigError, DaemonUnreachable, NotFound, Refused, RequestError
from autosched.link import Link
from autosched.model import JobLoad, JobState, Outcome, TaskInfo
from autosched.protocol import (
    PROTOCOL,
    AddArtifact,
    AddRecord,
    BlobState,
    Chunk,
    DaemonInfo,
    Done,
    EndStep,
    ExplainJob,
    Explanation,
    GetBlob,
    GetOrder,
    GetRecords,
    Hello,
    Info,
    JobList,
    JobOrder,
    JobView,
    ListDevices,
    ListJobs,
    ListSpans,
    PlanNetwork,
    PutBlob,
    RecordPage,
    Shutdown,
    SpanList,
    UnitList,
    Welcome,
)
from autosched.remote import Daemon
from integration.served import SHA256, Puppet, load, record, run, serving, spec, user

BUILD, PROFILE = load(1, "host", "build"), load(1, "device:cpu", "profile")
NETWORK = Network(tasks=(TaskInfo(task=1, name="conv", workload="w", weight=2),))


async def attached(daemon: Daemon, folder: Path, first: JobLoad = BUILD, **words: object) -> tuple[int, Puppet]:
    """A job with its client."""
    submitted = await daemon.submit(spec(**words))
    puppet = await Puppet(first).connect(f"unix:{folder}/api.sock", submitted.job, submitted.token)
    return submitted.job, puppet


async def until(daemon: Daemon, job: int, holds: Callable[[JobView], bool]) -> JobView:
    """Wait for a change after which this holds."""
    view = await daemon.job(job)
    while not holds(view):
        view = await daemon.job(job, since=view.version, wait_s=10.0)
    return view


# A job from submit to end -------------------------------------------------------------------------------------------


def test_a_job_goes_from_submit_over_its_steps_and_records_to_its_end(tmp_path: Path) -> None:
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
            assert (step.stage, step.job, step.task, step.units) == ("import", job, 0, ("host/0",))
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
            assert await daemon.records(job) == [record(trial) for trial in range(4)]
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
            await puppet.ask(AddArtifact(name="net.so", sha256=SHA256))
            with pytest.raises(NotFound, match="is not uploaded"):
                await puppet.ask(AddArtifact(name="other.so", sha256="0" * 64))
            (artifact,) = await daemon.artifacts(job)
            path = await daemon.download(artifact, tmp_path)
            assert path.read_bytes() == (tmp_path / "model.onnx").read_bytes()
            daemon.close()

    run(work)


# What clients may not do --------------------------------------------------------------------------------------------


def test_an_end_counts_once_and_only_from_the_client_that_runs_the_step(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            _, mine = await attached(daemon, tmp_path)
            _, other = await attached(daemon, tmp_path, PROFILE)
            step = await mine.steps.get()
            with pytest.raises(Refused, match=f"stale step: {step.id} is not running for job 2"):
                await other.end(step)
            await mine.end(step)
            with pytest.raises(Refused, match="stale step"):
                await mine.end(step)
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
            assert [r.trial for r in await daemon.records(job)] == [0, 1, 2]
            assert (await daemon.job(job)).trials == 3
            daemon.close()

    run(work)


def test_numbers_that_no_database_holds_are_refused(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            job, puppet = await attached(daemon, tmp_path)
            with pytest.raises(RequestError, match="out of range"):
                await puppet.ask(PlanNetwork(network=NETWORK, trials=2**63))
            with pytest.raises(RequestError, match="out of range"):
                await puppet.ask(AddRecord(record=msgspec.structs.replace(record(0), trial=2**63)))
            await puppet.ask(AddRecord(record=record(0)))
            assert len(await daemon.records(job)) == 1
            daemon.close()

    run(work)


def test_a_network_of_thousands_of_operators_is_shown_as_far_as_it_fits(tmp_path: Path) -> None:
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


def test_a_list_is_cut_to_what_fits_an_answer(tmp_path: Path) -> None:
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


def test_a_client_needs_its_token_and_is_the_only_one(tmp_path: Path) -> None:
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


def test_a_client_that_hangs_up_has_lost_its_steps(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path, "[resources]\nlanes = 1\n"):
            daemon = await user(tmp_path)
            job, puppet = await attached(daemon, tmp_path)
            _, next_in_line = await attached(daemon, tmp_path)
            await puppet.steps.get()
            assert puppet.link is not None
            puppet.link.abort("pulled the plug")
            assert (await next_in_line.steps.get()).units == ("host/0",)
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


def test_a_client_that_does_not_come_in_time_fails_its_job(tmp_path: Path) -> None:
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
            await daemon.cancel(job)  # a second time is no mistake
            assert "cancelled" in await puppet.stopped.get()
            assert puppet.link is not None
            await puppet.link.wait_closed()  # this one does not end by itself
            view = await until(daemon, job, lambda view: "stopping" not in view.reason)
            assert (view.state, view.reason) == ("cancelled", "cancelled by its user")
            daemon.close()

    run(work)


# What users may not do ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        ({"model": "0" * 64}, NotFound, "is not uploaded"),
        ({"device": "npu"}, NotFound, "no device is of the kind 'npu'; there are: cpu"),
        ({"external": False, "backend": "magic"}, NotFound, "no backend is named 'magic'. Installed:"),
        ({"trials": 0}, RequestError, "nothing would be tuned"),
        ({"records_from": 7}, NotFound, "there is no job 7; there are none"),
        ({"target": "{'kind': 'llvm'}"}, RequestError, "is no JSON object"),
        ({"target": '{"kind": '}, RequestError, "is no JSON object"),
    ],
)
def test_what_cannot_work_is_refused_with_what_would(
    tmp_path: Path, words: dict[str, object], error: type[AutoschedError], message: str
) -> None:
    async def work() -> None:
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            with pytest.raises(error) as caught:
                await daemon.submit(spec(**words))
            assert message in str(caught.value)
            assert (await daemon.info()).jobs_total == 0
            daemon.close()

    run(work)


def test_a_negative_budget_does_not_get_past_the_wire(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            with pytest.raises(AutoschedError, match="trials"):
                await daemon.submit(spec(trials=-1))
            assert (await daemon.info()).jobs_total == 0
            daemon.close()

    run(work)


def test_a_job_that_is_not_there_is_not_found_whatever_its_number(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            for job in (0, 1, -1, 2**63, 2**64 - 1):
                with pytest.raises(NotFound, match=f"there is no job {job}"):
                    await daemon.job(job)
                with pytest.raises(NotFound):
                    await daemon.link.call(GetRecords(job=job), RecordPage)
            assert (await daemon.link.call(ListSpans(after=2**64 - 1), SpanList)).spans == ()
            await daemon.submit(spec())
            with pytest.raises(NotFound, match="the last one is 1"):
                await daemon.job(2)
            daemon.close()

    run(work)


def test_more_jobs_than_allowed_are_refused(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path, "[limits]\njobs_active_max = 2\n"):
            daemon = await user(tmp_path)
            results = await asyncio.gather(*(daemon.submit(spec()) for _ in range(5)), return_exceptions=True)
            assert [isinstance(result, Refused) for result in results] == [False, False, True, True, True]
            await daemon.cancel(1)
            assert (await daemon.submit(spec())).job == 3
            daemon.close()

    run(work)


def test_jobs_are_listed_with_the_newest_last(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            for name in "abc":
                await daemon.submit(spec(name=name))
            listed = (await daemon.link.call(ListJobs(limit=2), JobList)).jobs
            assert [view.name for view in listed] == ["b", "c"]
            daemon.close()

    run(work)


def test_a_look_at_a_job_waits_for_news(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            job, puppet = await attached(daemon, tmp_path)
            step = await puppet.steps.get()
            view = await until(daemon, job, lambda view: "building" in view.reason)
            waiting = asyncio.ensure_future(daemon.job(job, since=view.version, wait_s=20.0))
            await daemon.info()
            assert not waiting.done()
            puppet.measure(0)
            assert (await waiting).trials == 1
            await puppet.end(step)
            daemon.close()

    run(work)


# Who comes in -------------------------------------------------------------------------------------------------------


async def opened(folder: Path) -> Link:
    return await Link.open(f"unix:{folder}/api.sock")


def test_another_protocol_and_unknown_roles_are_refused_with_words(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path):
            link = await opened(tmp_path)
            with pytest.raises(Refused, match=r"old 0\.1 speaks protocol 2\.0, this daemon .* speaks 1\.0"):
                await link.call(Hello(protocol=(2, 0), software="old 0.1"), Welcome)
            with pytest.raises(RequestError, match="there are: user, client"):
                await link.call(Hello(protocol=PROTOCOL, software="x", role="king"), Welcome)
            with pytest.raises(AutoschedError, match="no method is named 'info' here; there are: hello"):
                await link.call(Info(), DaemonInfo)
            welcome = await link.call(Hello(protocol=(1, 7), software="x"), Welcome)
            assert welcome.protocol == PROTOCOL
            assert (await link.call(Info(), DaemonInfo)).pid == os.getpid()
            with pytest.raises(AutoschedError, match="no method is named 'get_order' here"):
                await link.call(GetOrder(), JobOrder)
            link.close()

    run(work)


def test_a_connection_without_hello_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "HELLO_S", 0.05)

    async def work() -> None:
        async with serving(tmp_path):
            link = await opened(tmp_path)
            assert "no hello within" in await link.wait_closed()

    run(work)


def test_more_connections_than_allowed_are_refused(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path, "[limits]\nconnections_max = 3\n"):
            daemons = [await Daemon.connect(f"unix:{tmp_path}/api.sock") for _ in range(3)]
            link = await opened(tmp_path)
            assert "3 connections are open" in await link.wait_closed()
            assert (await daemons[0].info()).jobs_total == 0
            for daemon in daemons:
                daemon.close()

    run(work)


def test_users_are_served_on_tcp_too(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path) as served:
            daemon = await Daemon.connect(served._addresses[1])
            assert (await daemon.info()).state_dir == str(tmp_path)
            daemon.close()

    run(work)


def test_the_socket_is_private(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path):
            assert stat.S_IMODE(os.stat(tmp_path / "api.sock").st_mode) == 0o600

    run(work)


def test_hostile_bytes_of_one_leave_the_others_unharmed(tmp_path: Path) -> None:
    hostile = [
        b"\xff" * 100_000,
        b"\x00\x00\x10\x01",
        b"\x00\x00\x0f\xff" + b"\x91" * 4_095,
        b"\x00\x00\x00\x01\xc1",
        b"\x00\x00\x0f\xff short",
        b"",
        os.urandom(5_000),
    ]

    async def work() -> None:
        async with serving(tmp_path):
            daemon = await Daemon.connect(f"unix:{tmp_path}/api.sock")
            for sent in hostile * 3:
                reader, writer = await asyncio.open_unix_connection(f"{tmp_path}/api.sock")
                writer.write(sent)
                writer.write_eof()
                with suppress(ConnectionError):
                    await reader.read()
                writer.close()
                assert (await daemon.info()).jobs_total == 0
            daemon.close()

    run(work)


def test_an_interrupted_upload_goes_on(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path):
            first = await user(tmp_path)
            put = PutBlob(sha256="1" * 64, total=100, offset=0, data=b"x" * 40)
            assert await first.link.call(put, BlobState) == BlobState(40, False)
            first.link.abort("cable cut")
            again = await user(tmp_path)
            ask = PutBlob(sha256="1" * 64, total=100, offset=0, data=b"")
            assert await again.link.call(ask, BlobState) == BlobState(40, False)
            with pytest.raises(NotFound):
                await again.link.call(GetBlob(sha256="1" * 64, offset=0), Chunk)
            again.close()

    run(work)


# Lives --------------------------------------------------------------------------------------------------------------


def test_a_restart_loses_no_record_and_asks_for_clients_again(tmp_path: Path) -> None:
    tokens: list[str] = []

    async def first() -> None:
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            submitted = await daemon.submit(spec())
            tokens.append(submitted.token)
            puppet = await Puppet(BUILD).connect(f"unix:{tmp_path}/api.sock", 1, submitted.token)
            step = await puppet.steps.get()
            await puppet.ask(PlanNetwork(network=NETWORK, trials=50))
            for trial in range(20):
                puppet.measure(trial)
            await puppet.end(step, BUILD)
            await puppet.steps.get()
            daemon.close()

    async def second() -> None:
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            view = await daemon.job(1)
            assert (view.state, view.trials, view.trials_total) == ("starting", 20, 50)
            assert view.estimate_s == pytest.approx(0.002)
            puppet = await Puppet(BUILD).connect(f"unix:{tmp_path}/api.sock", 1, tokens[0])
            order = await puppet.ask(GetOrder(), JobOrder)
            assert isinstance(order, JobOrder)
            assert (order.network, order.records) == (NETWORK, 20)
            assert (await puppet.steps.get()).id == 3
            assert [(s.step, s.outcome) for s in await daemon.spans()] == [(1, "done"), (2, "lost"), (3, "running")]
            with pytest.raises(Refused, match="stale step"):
                await puppet.ask(EndStep(step=2, outcome=Outcome.DONE, load=BUILD))
            assert await daemon.records(1) == [record(trial) for trial in range(20)]
            daemon.close()

    run(first)
    run(second)


def test_a_damaged_journal_is_not_served(tmp_path: Path) -> None:
    async def write() -> None:
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            await daemon.submit(spec())
            daemon.close()

    async def refuse() -> None:
        async with serving(tmp_path):
            pass

    run(write)
    database = sqlite3.connect(tmp_path / "autosched.db", isolation_level=None)
    database.execute("UPDATE journal SET crc = crc + 1 WHERE seq = 2")
    database.close()
    with pytest.raises(JournalDamaged, match="checksum of row 2"):
        run(refuse)
    assert not (tmp_path / "api.sock").exists()


def test_a_policy_is_part_of_the_history(tmp_path: Path) -> None:
    """A journal written under one policy is replayed under it, whatever the configuration says now."""

    async def life(settings: str, policy: str) -> None:
        async with serving(tmp_path, settings):
            daemon = await user(tmp_path)
            assert (await daemon.info()).policy == policy
            for _ in range(2):
                _, puppet = await attached(daemon, tmp_path, PROFILE)
            del puppet
            daemon.close()

    for settings, policy in (("[scheduler]\npolicy = 'sequential'\n", "sequential"), ("", "interleaved")) * 2:
        run(lambda settings=settings, policy=policy: life(settings, policy))  # type: ignore[misc]


def test_a_stop_ends_connections_and_leaves_nothing_behind(tmp_path: Path) -> None:
    async def work() -> None:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(serving(tmp_path))
            daemon = await user(tmp_path)
            _, puppet = await attached(daemon, tmp_path)
            await daemon.link.call(Shutdown(), Done)
            assert "the daemon stops" in await puppet.stopped.get()
            await daemon.link.wait_closed()
        assert not (tmp_path / "api.sock").exists()
        assert not (tmp_path / "daemon.json").exists()

    run(work)


def test_a_daemon_on_demand_ends_when_nothing_is_left_to_do(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path, "idle_exit_s = 0.1\n", on_demand=True) as served:
            daemon = await user(tmp_path)
            _, puppet = await attached(daemon, tmp_path)
            served._stop_if_idle()
            assert not served._stop.is_set(), "a user is connected"
            daemon.close()
            await daemon.link.wait_closed()
            step = await puppet.steps.get()
            served._stop_if_idle()
            assert not served._stop.is_set(), "a job is active"
            await puppet.end(step, JobLoad(complete=True))
            await served._stop.wait()
            assert served._why == "idle for 0.1 s"

    run(work)


def test_sigterm_ends_it(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            os.kill(os.getpid(), signal.SIGTERM)
            await daemon.link.wait_closed()

    run(work)


def test_a_port_that_is_taken_is_named_and_nothing_is_left_behind(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path / "first") as served:
            address = served._addresses[1].removeprefix("tcp://")
            text = f'[daemon]\nstate_dir = "{tmp_path}/second"\nlisten = "{address}"'
            with pytest.raises(ConfigError, match=rf"daemon\.listen: {address} cannot be used"):
                await Served(config.parse(text, "test"), False).serve()
            assert not (tmp_path / "second" / "api.sock").exists()
            with pytest.raises(DaemonUnreachable):
                await Daemon.connect(f"unix:{tmp_path}/second/api.sock")

    run(work)


# A full disk --------------------------------------------------------------------------------------------------------


async def submit_for_ever(daemon: Daemon) -> None:
    while True:
        await daemon.submit(spec(name="n" * 200))


def test_a_full_disk_refuses_submits_keeps_the_rest_and_passes(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path) as served:
            daemon = await user(tmp_path)
            job, puppet = await attached(daemon, tmp_path)
            step = await puppet.steps.get()
            database = served._runtime.journal._db
            database.execute("PRAGMA max_page_count = 1")
            for trial in range(200):
                puppet.measure(trial)
            ending = asyncio.ensure_future(puppet.end(step, BUILD))
            with pytest.raises(Refused, match="free some space"):
                await submit_for_ever(daemon)
            assert not ending.done()
            assert "free some space" in (await daemon.info()).warnings[-1]
            assert "free some space" in (await daemon.link.call(ExplainJob(job=job), Explanation)).lines[0]
            database.execute("PRAGMA max_page_count = 1000000")
            await ending
            assert len(await daemon.records(job)) == 200
            assert (await daemon.info()).warnings == served._warnings
            await daemon.submit(spec())
            daemon.close()

    run(work)
