"""A snapshot and the rows after it give the same state as all rows; an invalid one is skipped."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import msgspec
import pytest

from autosched.backend import Network
from autosched.core.actions import StartStep
from autosched.core.events import PolicyChosen, RuleChosen
from autosched.core.scheduler import Scheduler
from autosched.core.state import State
from autosched.daemon.recovery import snapshot, state_recovery
from autosched.daemon.recovery.snapshot import Snapshot
from autosched.daemon.storage.job_store import TABLES, JobStore, Planned
from autosched.daemon.storage.journal import Journal
from autosched.model import Failure, Goal, Purpose, Record, TaskInfo
from autosched.network_status import NOT_MEASURED, NetworkMeasurements, NetworkStatus
from autosched.process import whole_file
from autosched.sim.random_testing import CHOICE
from autosched.sim.scenario import random_scenario
from autosched.sim.simulator import Entry, Simulator

NETWORK = Network(tasks=tuple(TaskInfo(task=task, name=f"conv{task}", workload="w") for task in (1, 2)))


def lived(policy: str, seed: int) -> list[Entry]:
    """Returns a history with faults, restarts, cancelled jobs and other policies."""
    world = Simulator(random_scenario(seed), CHOICE[policy], choice=CHOICE)
    world.run()
    return world.history


def replayed(core: Scheduler, history: list[Entry]) -> Scheduler:
    """Replays the history as a journal."""
    for entry in history:
        core.handle(entry.now, entry.event, tuple(a.step for a in entry.actions if isinstance(a, StartStep)))
    return core


def told(core: Scheduler) -> State:
    """Returns the state without stale entries of its heaps."""
    state = core.state
    for queue in state.queues.values():
        queue.heap = sorted(entry for entry in queue.heap if state.is_live(*entry[1:]))
    return state


def woken_at(core: Scheduler) -> float | None:
    return core.handle(core.state.now, RuleChosen(core.state.rule)).wake_at


def taken(core: Scheduler, seq: int = 0) -> Snapshot:
    return Snapshot(seq, core.policy.name, "", (), core.state, {}, {}, 0, 0)


def revived(saved: Snapshot) -> Scheduler:
    return Scheduler(CHOICE[saved.policy], policies=CHOICE, state=saved.state)


@pytest.mark.parametrize("policy", ["predictive", "interleaved", "sequential"])
def test_a_snapshot_and_the_later_events_give_the_whole_state(policy: str) -> None:
    for seed in range(12):
        history = lived(policy, seed)
        cut = Random(seed).randrange(len(history))
        whole = replayed(Scheduler(CHOICE[policy], policies=CHOICE), history)
        first = replayed(Scheduler(CHOICE[policy], policies=CHOICE), history[:cut])
        second = revived(snapshot.decode(snapshot.encode(taken(first))))
        assert told(second) == told(first), f"seed {seed}"
        assert told(replayed(second, history[cut:])) == told(whole), f"seed {seed}"
        assert second.policy == whole.policy
        assert woken_at(second) == woken_at(whole)


@pytest.mark.parametrize("policy", ["predictive", "interleaved"])
def test_decisions_after_a_restart_are_the_same(policy: str) -> None:
    """The queues are equal, too: waiting tasks are served in the same order."""
    for seed in range(8):
        history = lived(policy, seed)
        cut = Random(seed).randrange(len(history))
        chosen = PolicyChosen(policy, Goal.BALANCED, "a restart")
        cores = [replayed(Scheduler(CHOICE[policy], policies=CHOICE), history[:cut]) for _ in range(2)]
        cores[1] = revived(snapshot.decode(snapshot.encode(taken(cores[1]))))
        now = cores[0].state.now
        first, second = (core.handle(now, chosen) for core in cores)
        assert first == second, f"seed {seed}"


# With the database ----------------------------------------------------------------------------------------------------


def write(path: Path, history: list[Entry], also: Callable[[JobStore], None] | None = None) -> None:
    """Writes these events to a daemon's journal, too."""

    async def run() -> None:
        journal = Journal(path, *TABLES)
        list(journal.replay())
        journal.start()
        for entry in history:
            journal.append(entry.now, entry.event, tuple(a.step for a in entry.actions if isinstance(a, StartStep)))
        if also is not None:
            also(JobStore(journal))
        await journal.write()
        journal.close()

    asyncio.run(run())


def recovered(path: Path, snapshots: Path) -> tuple[int, State, dict[int, object], Snapshot]:
    """Returns the number of replayed events, the state, and its snapshot."""

    async def run() -> tuple[int, State, dict[int, object], Snapshot]:
        journal = Journal(path, beside=True)
        past = state_recovery.recover(journal, snapshots)
        saved = state_recovery.take(journal, past)
        journal.close()
        jobs: dict[int, object] = {job: replace(past.progress.get(job), version=0) for job in sorted(saved.jobs)}
        return past.replayed, told(past.runtime.scheduler), jobs, saved

    return asyncio.run(run())


def record(trial: int, purpose: Purpose = Purpose.TRIAL) -> Record:
    failure = Failure.RUN_CRASH if trial % 5 == 4 else None
    latency_s = () if failure else (0.1 / (trial + 1), 0.2 / (trial + 1))
    return Record(
        task=1 + trial % 2, number=trial, candidate=b"c", latency_s=latency_s, failure=failure, purpose=purpose
    )


def test_a_restart_replays_only_what_came_after_the_snapshot(tmp_path: Path) -> None:
    history, path, snapshots = lived("predictive", 3), tmp_path / "db", tmp_path / "snapshots"
    half = len(history) // 2

    def before(store: JobStore) -> None:
        for job in (1, 2, 4):
            store.plan(job, Planned(NETWORK, 64, NOT_MEASURED))
            for trial in range(20):
                store.add_record(job, trial, record(trial))

    def after(store: JobStore) -> None:
        store.plan(3, Planned(NETWORK, 32, NOT_MEASURED))
        store.set_status(4, NetworkStatus(measured=NetworkMeasurements(result_s=2e-3)))
        store.add_record(3, 0, record(0))
        another = Network(tasks=NETWORK.tasks[:1])  # as another client sees it
        store.plan(2, Planned(another, 64, NOT_MEASURED))
        for trial in range(20, 30):
            store.add_record(1, trial, record(trial))
        store.tag(1, [3], "other load")
        store.add_record(1, 30, record(30, Purpose.FINAL))
        store.add_record(1, 31, record(32, Purpose.DEFAULT))
        store.tag(1, [32], "drift")

    write(path, history[:half], before)
    count, *_, saved = recovered(path, snapshots)
    assert count == half
    snapshot.write(snapshots, saved)
    write(path, history[half:], after)
    count, state, jobs, saved = recovered(path, snapshots)
    assert count == len(history) - half
    whole = recovered(path, tmp_path / "nowhere")
    assert whole[0] == len(history)
    assert (state, jobs) == whole[1:3]
    assert msgspec.to_builtins(saved.prints) == msgspec.to_builtins(whole[3].prints)
    assert len(jobs) == 4


def damaged(content: bytes) -> bytes:
    return content[:-20] + bytes([content[-20] ^ 1]) + content[-19:]


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (damaged, "checksum"),
        (lambda content: content[:-1], "checksum"),
        (lambda content: content[:10], "no snapshot"),
        (lambda content: b"", "no snapshot"),
        (lambda content: content.replace(snapshot.MAGIC, snapshot.MAGIC + b"\0", 1)[:-1], "another version"),
    ],
)
def test_an_unusable_snapshot_is_skipped_for_an_older_one(
    tmp_path: Path, spoil: Callable[[bytes], bytes], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    history, path, snapshots = lived("interleaved", 3), tmp_path / "db", tmp_path / "snapshots"
    for upto in (10, 20, 30):
        write(path, history[upto - 10 : upto])
        newest = snapshot.write(snapshots, recovered(path, snapshots)[3])
    assert len(list(snapshots.iterdir())) == snapshot.KEEP
    write(path, history[30:])
    newest.write_bytes(spoil(newest.read_bytes()))
    assert recovered(path, snapshots)[0] == len(history) - 20
    assert why in caplog.text


def test_a_snapshot_of_another_history_is_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    history, snapshots = lived("interleaved", 3), tmp_path / "snapshots"
    write(tmp_path / "one", history[:20])
    snapshot.write(snapshots, recovered(tmp_path / "one", snapshots)[3])
    write(tmp_path / "other", lived("interleaved", 11))
    write(tmp_path / "short", history[:10])
    assert recovered(tmp_path / "other", snapshots)[0] == len(lived("interleaved", 11))
    assert recovered(tmp_path / "short", snapshots)[0] == 10
    assert "another past" in caplog.text


def test_a_failed_snapshot_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "no space")

    monkeypatch.setattr(whole_file.os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        snapshot.write(tmp_path / "snapshots", taken(Scheduler()))
    assert list((tmp_path / "snapshots").iterdir()) == []
