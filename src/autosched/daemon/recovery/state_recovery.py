"""Restores the state from the newest snapshot and the rows after it.

The daemon does this when it starts, and so does the process that makes the next snapshot.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from autosched import policy_registry
from autosched.core.policies.policy import INTERLEAVED, Policy
from autosched.core.scheduler import Scheduler
from autosched.daemon.jobs.progress import ProgressRegistry
from autosched.daemon.policy_time_limit import LimitedPolicies, PolicyTimeLimit
from autosched.daemon.recovery import snapshot
from autosched.daemon.recovery.snapshot import PackedProgress, Snapshot
from autosched.daemon.runtime import Runtime
from autosched.daemon.storage import pruning
from autosched.daemon.storage.job_store import JobStore
from autosched.daemon.storage.journal import Journal
from autosched.model import JobId

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Recovered:
    """The recovered state."""

    runtime: Runtime
    progress: ProgressRegistry
    replayed: int
    """Number of events that were replayed after the snapshot."""


def recover(journal: Journal, folder: Path, budget: PolicyTimeLimit | None = None) -> Recovered:
    """Recover the state. `folder`: folder of snapshots. Raises Damaged."""
    pruned = pruning.mark(journal)
    found = snapshot.newest(folder, lambda seq: journal.crc_of(seq) if seq >= pruned else None)
    installed: Mapping[str, Policy] = policy_registry.Installed()
    if budget is not None:
        installed = LimitedPolicies(installed, budget)
    if found is None:
        runtime = Runtime(journal, Scheduler(policies=installed), budget)
    else:
        log.info("the snapshot of event %d is used", found.seq)
        policy = installed.get(found.policy) or INTERLEAVED
        scheduler = Scheduler(policy, policies=installed, state=found.state)
        runtime = Runtime(journal, scheduler, budget)
        runtime.replaced = found.replaced
        runtime.sharing.update(dict.fromkeys(found.sharing))
    progress = _progress(journal, found)
    replayed = runtime.replay(found.seq if found is not None else 0)
    for job in [job for job in (*progress.known, *progress.kept) if job not in runtime.state.jobs]:
        progress.forget(job)  # the job was pruned, and its records are still there
    for job, one in progress.known.items():
        if runtime.state.jobs[job].state.ended:
            one.close()
    return Recovered(runtime, progress, replayed)


def take(journal: Journal, past: Recovered) -> Snapshot:
    """A snapshot of the recovered state, before any further event."""
    runtime = past.runtime
    store = JobStore(journal)
    return Snapshot(
        seq=journal.seq,
        policy=runtime.scheduler.policy.name,
        replaced=runtime.replaced,
        sharing=tuple(runtime.sharing),
        state=runtime.state,
        jobs=_packed(past.progress),
        prints=store.checksums(),
        records=store.last_record(),
        crc=journal.crc_of(journal.seq) or 0,
    )


def _packed(progress: ProgressRegistry) -> dict[JobId, msgspec.Raw]:
    kept = {job: packed.raw for job, packed in progress.kept.items() if isinstance(packed, PackedProgress)}
    return kept | {job: PackedProgress.of(one).raw for job, one in progress.known.items()}


def _progress(journal: Journal, found: Snapshot | None) -> ProgressRegistry:
    """Count the records stored since the snapshot, and all records of jobs whose counted ones have changed."""
    progress, store = ProgressRegistry(), JobStore(journal)
    if found is None:
        progress.load(store)
        return progress
    prints = store.checksums()
    anew = {job: None for job in prints.keys() | found.prints.keys() if prints.get(job) != found.prints.get(job)}
    progress.kept.update({job: PackedProgress(raw) for job, raw in found.jobs.items() if job not in anew})
    for job, planned in store.networks(anew):
        progress.get(job).plan(*planned)
    for job, known in store.identities(anew):
        progress.get(job).identities.append(known)
    for record in store.found(found.records, anew):
        progress.get(record.job).add(record)
    return progress
