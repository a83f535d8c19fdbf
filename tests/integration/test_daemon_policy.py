"""The policy of a real daemon: chosen at run time, replaced when broken, labelled when it disturbs, replayed."""

import os
import shutil
import signal
from pathlib import Path

import pytest

from autosched import policy_registry
from autosched.core.events import Event, HistoryRecalled, JobSubmitted, PolicyChosen
from autosched.core.scheduler import Scheduler
from autosched.daemon.storage.database import DATABASE, TABLES
from autosched.daemon.storage.journal import Journal
from autosched.errors import NotFound, Refused
from autosched.model import NETWORK_TASK, Goal, JobLoad, JobState, Outcome, StageHistory, Step
from autosched.protocol import EndStep, JobList, ListJobs, PlanNetwork
from integration.lab import command_line, lab
from integration.served import BUILD, NETWORK, PROFILE, attached, load, run, serving, until, user
from packages import install

OFFERED = ("lifo", "raises", "holds-back-and-raises", "never-returns", "sleeps", "nonsense", "cannot-plan")
ONE_LANE = "[resources]\nlanes = 1\n"


@pytest.fixture
def theirs(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with valid and broken policies, for this process and its children."""
    entries = {name: f"their_policies:{name.replace('-', '_')}" for name in OFFERED}
    entries["broken"] = "their_broken_policies:it"
    folder = install(tmp_path_factory.mktemp("packages"), policy_registry.GROUP, **entries)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
    monkeypatch.setattr("autosched.plugin_registry._read", {})


def journal_of(folder: Path) -> list[tuple[float, Event, tuple[Step, ...] | None]]:
    """Returns the database of an ended daemon."""
    journal = Journal(folder / DATABASE, *TABLES)
    try:
        return list(journal.replay())
    finally:
        journal.close()


# Chosen ---------------------------------------------------------------------------------------------------------------


def test_a_policy_chosen_at_run_time_holds_until_the_next_start(tmp_path: Path) -> None:
    async def first() -> None:
        async with serving(tmp_path, ONE_LANE):
            daemon = await user(tmp_path)
            view = await daemon.choose_policy("sequential", Goal.LATENCY)
            assert (view.policy, view.goal, view.replaced) == ("sequential", "latency", "")
            assert {"sequential", "interleaved", "predictive"} <= set(view.installed)
            assert (await daemon.choose_policy(goal=Goal.MAKESPAN)).policy == "sequential"
            assert ((await daemon.info()).policy, (await daemon.info()).goal) == ("sequential", "makespan")
            _, one = await attached(daemon, tmp_path)
            job, two = await attached(daemon, tmp_path, PROFILE)
            await until(daemon, job, lambda view: view.state == "running")
            step = await one.steps.get()
            await one.end(step, PROFILE)
            assert (await one.steps.get()).stage == "profile"
            assert two.steps.empty(), "the device was free, and job 1 has not ended"
            daemon.close()

    async def second() -> None:
        async with serving(tmp_path, "[scheduler]\npolicy = 'interleaved'\n"):
            daemon = await user(tmp_path)
            view = await daemon.policy()
            assert (view.policy, view.goal, view.configured) == ("interleaved", "balanced", "interleaved")
            daemon.close()

    run(first)
    chosen = [event for _, event, _ in journal_of(tmp_path) if isinstance(event, PolicyChosen)]
    assert chosen == [
        PolicyChosen("sequential", Goal.LATENCY, f"uid {os.getuid()}"),
        PolicyChosen("sequential", Goal.MAKESPAN, f"uid {os.getuid()}"),
    ]
    run(second)


def test_an_invalid_policy_is_refused_and_changes_nothing(tmp_path: Path, theirs: None) -> None:
    async def work() -> None:
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            before = await daemon.policy()
            with pytest.raises(NotFound, match="no policy is named 'typo'; there are: "):
                await daemon.choose_policy("typo")
            with pytest.raises(Refused, match="allow_interference = true"):
                await daemon.choose_policy("synchronous")
            with pytest.raises(Refused, match=f"cannot be loaded: .* {before.policy} goes on deciding"):
                await daemon.choose_policy("broken")
            assert await daemon.policy() == before
            daemon.close()

    run(work)


def test_a_package_that_cannot_be_loaded_does_not_keep_the_daemon_from_starting(tmp_path: Path, theirs: None) -> None:
    async def work() -> None:
        async with serving(tmp_path, "[scheduler]\npolicy = 'broken'\n"):
            daemon = await user(tmp_path)
            view = await daemon.policy()
            assert (view.policy, view.configured) == ("interleaved", "broken")
            assert "No module named 'no_such_module_anywhere'" in view.replaced
            assert (await daemon.info()).warnings[-1] == view.replaced
            assert (await daemon.choose_policy("interleaved")).replaced == ""
            daemon.close()

    run(work)


def test_a_policy_of_another_package_decides(tmp_path: Path, theirs: None) -> None:
    async def work() -> None:
        async with serving(tmp_path, f"{ONE_LANE}[scheduler]\npolicy = 'lifo'\n"):
            daemon = await user(tmp_path)
            clients = []
            for job in (1, 2, 3):  # each is processed before the next one
                clients.append((await attached(daemon, tmp_path))[1])
                await until(daemon, job, lambda view: view.state == "running")
            await clients[0].end(await clients[0].steps.get(), JobLoad(complete=True))
            assert (await clients[2].steps.get()).job == 3, "the last to come is the first to go"
            assert clients[1].steps.empty()
            daemon.close()

    run(work)


def test_jobs_whose_steps_shared_a_unit_are_labelled_even_after_a_restart(tmp_path: Path) -> None:
    async def disturb() -> None:
        async with serving(tmp_path, "[scheduler]\nallow_interference = true\npolicy = 'synchronous'\n"):
            daemon = await user(tmp_path)
            _, client = await attached(daemon, tmp_path, PROFILE)
            await client.end(await client.steps.get(), PROFILE)
            await client.steps.get()
            assert (await daemon.job(1)).shared_units
            daemon.close()

    async def look() -> None:
        async with serving(tmp_path, "[scheduler]\npolicy = 'interleaved'\n"):
            daemon = await user(tmp_path)
            await attached(daemon, tmp_path, PROFILE)
            jobs = (await daemon.link.call(ListJobs(), JobList)).jobs
            assert [view.shared_units for view in jobs] == [True, False]
            daemon.close()

    run(disturb)
    run(look)


# Broken ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OFFERED[1:])
def test_a_broken_policy_is_replaced_with_a_warning_and_all_jobs_end(tmp_path: Path, theirs: None, name: str) -> None:
    with lab(tmp_path, f"[scheduler]\npolicy = '{name}'\npolicy_budget_s = 0.02\n") as there:
        jobs = [there.submit(trials=8, tasks=2) for _ in range(2)]
        assert [there.wait(job).state for job in jobs] == ["done", "done"]
        there.end(signal.SIGTERM)
    chosen = [event for _, event, _ in journal_of(tmp_path) if isinstance(event, PolicyChosen)]
    assert [(event.policy, event.by) for event in chosen] == [("interleaved", "the daemon")]
    assert chosen[0].reason
    errors = [line for line in (tmp_path / "daemon.log").read_text().splitlines() if " ERROR " in line]
    assert len(errors) == 1
    assert "ReplacePolicy" in errors[0]
    assert f"policy={name} instead=interleaved" in errors[0]


def test_status_policy_and_explain_report_a_replaced_policy(
    tmp_path: Path, theirs: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with lab(tmp_path, "[scheduler]\npolicy = 'raises'\n") as there:
        cli = command_line(there, tmp_path, monkeypatch, capsys)
        there.wait(there.submit(trials=8, tasks=1))
        for command in ("policy", "status"):
            code, out, _ = cli(command)
            assert code == 0
            assert "ZeroDivisionError" in out
            assert "interleaved decides instead" in out
        assert " at the next start: raises, as configured" in cli("policy")[1]
        there.end(signal.SIGTERM)
        there.start("[scheduler]\npolicy = 'interleaved'\n")
        assert "ZeroDivisionError" not in cli("policy")[1], "that was in another life"


# Remembered -----------------------------------------------------------------------------------------------------------


def test_times_of_earlier_jobs_are_loaded_before_the_first_decision(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            for worked_s in (3.0, 5.0):
                _, client = await attached(daemon, tmp_path, load(0, "host", "import"), backend="mock")
                step = await client.steps.get()
                await client.ask(PlanNetwork(network=NETWORK, trials=4))
                await client.ask(EndStep(step=step.id, outcome=Outcome.DONE, load=PROFILE, worked_s=worked_s))
                step = await client.steps.get()
                await client.ask(
                    EndStep(step=step.id, outcome=Outcome.DONE, load=JobLoad(complete=True), worked_s=2 * worked_s)
                )
            _, failing = await attached(daemon, tmp_path, load(0, "host", "import"), backend="mock")
            await failing.end(await failing.steps.get(), JobLoad(complete=True), outcome=Outcome.FAILED)
            _, other = await attached(daemon, tmp_path, PROFILE, backend="ansor")
            step = await other.steps.get()  # on a machine with one core it holds the only unit
            await other.end(step, JobLoad(complete=True), outcome=Outcome.FAILED)
            _, last = await attached(daemon, tmp_path, BUILD, backend="mock")
            await last.steps.get()
            daemon.close()

    run(work)
    told = [event for _, event, _ in journal_of(tmp_path) if isinstance(event, HistoryRecalled)]
    imported = StageHistory(NETWORK_TASK, "import", 3.0, 1)
    assert [(event.job, event.stages) for event in told] == [
        (2, (imported,)),  # when its client came
        (2, (imported, StageHistory(1, "profile", 6.0, 1))),  # when its network was known
        (3, (StageHistory(NETWORK_TASK, "import", 4.0, 2),)),
        (5, (StageHistory(NETWORK_TASK, "import", 4.0, 2),)),
    ], "job 4 is of another backend, and what failed teaches nothing"


# Repeated -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["predictive", "interleaved", "sequential"])
def test_a_replay_of_the_journal_gives_the_same_decisions(tmp_path: Path, policy: str) -> None:
    """The core, replayed without the decisions, starts the same steps at each event."""
    with lab(tmp_path, f"[scheduler]\npolicy = '{policy}'\n") as there:
        jobs = [there.submit(trials=24, tasks=3, seed=seed, priority=seed) for seed in range(3)]
        there.wait(jobs[0], until="trials", trials=4)
        there.kill_client(jobs[0])
        assert [there.wait(job).state for job in jobs] == ["done"] * 3
        there.end(signal.SIGTERM)
    again = Scheduler()
    steps = 0
    for now, event, started in journal_of(tmp_path):
        assert again.handle(now, event, more=isinstance(event, JobSubmitted)).steps == started
        steps += len(started or ())
    assert steps > 30
    assert [job.state for job in again.state.jobs.values()] == [JobState.DONE] * 3


def test_a_daemon_that_lost_a_policy_replays_what_it_decided(
    tmp_path: Path, theirs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lab(tmp_path, "[scheduler]\npolicy = 'lifo'\n") as there:
        jobs = [there.submit(trials=16, tasks=2, build_s=0.05) for _ in range(3)]
        there.wait(jobs[0], until="trials", trials=4)
        there.end(signal.SIGKILL)
        shutil.rmtree(os.environ["PYTHONPATH"].partition(os.pathsep)[0])
        there.start("[scheduler]\npolicy = 'interleaved'\n")
        assert [there.wait(job).state for job in jobs] == ["done"] * 3
