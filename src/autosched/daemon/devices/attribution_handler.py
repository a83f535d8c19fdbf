"""Attributes failed measurements to candidates or devices (`autosched.records.failure_attribution`), and reacts.

A case is written in the same transaction as the record that changed it, so that both are kept or lost together. A
client's report on a device counts only while the daemon leases that device to the client.
"""

import hashlib
from collections.abc import Callable, Iterable

import msgspec
from msgspec import Struct

from autosched.daemon.devices.device_monitor import DeviceMonitor, is_device
from autosched.daemon.event_stream.daemon_events import CandidateBlocked, ClientNews
from autosched.daemon.jobs.progress import ProgressRegistry
from autosched.daemon.runtime import Runtime
from autosched.daemon.storage import failure_cases
from autosched.daemon.storage.batched_statements import Statement
from autosched.daemon.storage.schema import checked
from autosched.errors import NotFound
from autosched.model import Failure, JobId, Outcome, Purpose, Record, Step, StepId, TaskIndex, UnitName, encode
from autosched.protocol import BLOCKS_MAX, BlockCandidates, BlockedCandidate, CandidateBlock
from autosched.records import identity
from autosched.records.failure_attribution import (
    DOUBTFUL,
    WORDS_MAX,
    CandidateSuspicion,
    Case,
    DeviceSuspicion,
    Finding,
    Incident,
    Mishap,
    Suspect,
    Verdict,
)
from autosched.stages import PROFILE

BATCH_LEAST = 3
"""Minimum number of candidates of a step that fail, none succeeding, for a suspicion against the device."""
GONE = (Failure.RUN_CRASH, Failure.RUN_TIMEOUT)


class Tally(Struct):
    """Counts of the measurements of a step on a device."""

    good: int = 0
    bad: int = 0
    """Failures of candidates that were measured for the first time."""
    gone: int = 0
    """Failures among these by crash or timeout. Other failures may come from a broken plugin."""


class AttributionHandler:
    """All cases of candidates, and the suspicions against devices."""

    def __init__(
        self,
        runtime: Runtime,
        progress: ProgressRegistry,
        monitor: DeviceMonitor,
        quarantine: Callable[[UnitName, Verdict], None],
        suspicion: DeviceSuspicion,
    ) -> None:
        """Called before the journal accepts writes. `quarantine`: isolates a device, or checks it before."""
        self._runtime, self._progress, self._monitor = runtime, progress, monitor
        self._quarantine, self._suspicion = quarantine, suspicion
        self._journal = runtime.journal
        self.blame = CandidateSuspicion(failure_cases.cases(self._journal))
        self._tallies: dict[StepId, Tally] = {}
        self._proven: set[str] = set()
        """Circumstances under which a measurement has succeeded since the daemon started."""

    # Reports of clients -----------------------------------------------------------------------------------------------

    def recorded(self, job: JobId, record: Record) -> tuple[Statement, ...]:
        """Judge a measurement. Returns the statements to write together with its record."""
        step = self._step(job, record)
        known = self._progress.get(job).tasks.get(record.task)
        if step is None or known is None or record.purpose in (Purpose.DEFAULT, Purpose.NETWORK, Purpose.KNOWN):
            return ()
        failed = record.failure in DOUBTFUL
        if not failed and not record.latency_s:
            return ()
        if (tally := self._tallies.get(step.id)) is None:
            running = self._runtime.state.steps
            self._tallies = {one: tally for one, tally in self._tallies.items() if one in running}
            tally = self._tallies[step.id] = Tally()
        place = self._circumstances(job)
        suspect = Suspect(place, known.info.workload, hashlib.sha256(record.candidate).hexdigest())
        now, device, owner = self._runtime.clock(), record.unit, self._runtime.state.jobs[job].owner
        if failed:
            tally.bad += record.purpose is Purpose.TRIAL
            tally.gone += record.purpose is Purpose.TRIAL and record.failure in GONE
            self._monitor.doubt(device)
            return self._act(
                self.blame.failed(suspect, Incident(device, now, _words(record), job, record.number, owner)), owner
            )
        tally.good += 1
        self._proven.add(place)
        self._suspicion.well(device)
        return self._act(self.blame.passed(suspect, device, now, owner), owner)

    def ended(self, step: Step, outcome: Outcome, error: str) -> None:
        """Judge a step that has ended. A step without any success is evidence against its device, but no proof.

        In a job without any success the plugin or the model may be broken. Its steps count only where other jobs
        measured under the same circumstances, or where all candidates crashed or hung; a step that failed as a whole
        does not count.
        """
        tally = self._tallies.pop(step.id, Tally())
        if len(step.units) != 1 or step.stage != PROFILE or tally.good:
            return
        who, mark = f"job {step.job}, task {step.task}", (step.job, step.task)
        owner = self._runtime.state.jobs[step.job].owner
        sound = any(task.best_s is not None for task in self._progress.get(step.job).tasks.values())
        proven = self._circumstances(step.job) in self._proven
        if outcome is Outcome.FAILED:
            if sound:
                self._against(step.units[0], mark, f"{who} failed as a whole: {error[:WORDS_MAX]}", owner)
        elif (tally.bad if sound or proven else tally.gone) >= BATCH_LEAST:
            self._against(step.units[0], mark, f"all {tally.bad} candidates of {who} failed", owner)

    def _circumstances(self, job: JobId) -> str:
        """Key of the circumstances under which failures are comparable with those of the job."""
        return identity.circumstances(self._runtime.state.jobs[job].spec, self._progress.get(job).identity)

    def _step(self, job: JobId, record: Record) -> Step | None:
        """The step that made a record; None for a device that the client does not hold."""
        state = self._runtime.state
        task = state.jobs[job].tasks.get(record.task)
        steps = [state.steps[step] for step in task.steps] if task is not None else []
        step = next((step for step in steps if record.unit in step.units), None)
        return step if step is not None and is_device(state.slots[record.unit]) else None

    # Reactions --------------------------------------------------------------------------------------------------------

    def _act(self, finding: Finding, owner: str) -> tuple[Statement, ...]:
        blocked = [case for case in finding.changed if case.blocked]
        for case in blocked:
            self._runtime.stream.publish(CandidateBlocked(case.number, case.suspect.workload, case.reason))
        self._announce(blocked)
        self._announce([case for case in finding.closed if case.blocked], forgiven=True)
        for device, case in finding.against:
            words = f"{case.mishaps[0].words} (job {case.mishaps[0].job}), which passes elsewhere"
            self._against(device, case.suspect, words, owner, proved=True)
        return _statements(finding)

    def _against(
        self, device: UnitName, what: Suspect | tuple[JobId, TaskIndex], words: str, owner: str, *, proved: bool = False
    ) -> None:
        if not is_device(self._runtime.state.slots[device]):
            return
        mishap = Mishap(self._runtime.clock(), what, words, owner, proved)
        if (verdict := self._suspicion.against(device, mishap)) is not None:
            if statements := _statements(self.blame.excuse(device)):
                self._journal.write(*statements, lazy=True)
            self._quarantine(device, verdict)

    def _announce(self, cases: Iterable[Case], forgiven: bool = False) -> None:
        """Notify the clients of all jobs with the same task."""
        for case in cases:
            for job in self._runtime.state.active:
                meant = forgiven or case.blocks(self._runtime.state.jobs[job].owner)
                if meant and self._circumstances(job) == case.suspect.place:
                    self._send(job, [case], forgiven)

    def _send(self, job: JobId, cases: Iterable[Case], forgiven: bool = False) -> None:
        tasks: dict[str, list[TaskIndex]] = {}
        for index, task in self._progress.get(job).tasks.items():
            tasks.setdefault(task.info.workload, []).append(index)
        notes = [
            CandidateBlock(task, case.suspect.sha256, "" if forgiven else case.reason)
            for case in cases
            for task in tasks.get(case.suspect.workload, ())
        ]
        for begin in range(0, len(notes), BLOCKS_MAX):
            news = BlockCandidates(candidates=tuple(notes[begin : begin + BLOCKS_MAX]))
            self._runtime.stream.publish(ClientNews(job, news))

    def tell_all(self, job: JobId) -> None:
        """Tell the client of a job whose network is known which candidates are blocked."""
        workloads = (task.info.workload for task in self._progress.get(job).tasks.values())
        owner, known = self._runtime.state.jobs[job].owner, self.blame.blocked(self._circumstances(job), workloads)
        self._send(job, [case for case in known if case.blocks(owner)])

    # Calls of users ---------------------------------------------------------------------------------------------------

    def listed(self, limit: int, before: int | None) -> tuple[BlockedCandidate, ...]:
        """The latest blocked candidates, newest last."""
        found = []
        for case in reversed(self.blame.cases.values()):
            if case.blocked and (before is None or case.number < before):
                found.append(
                    BlockedCandidate(number=case.number, reason=case.reason, **msgspec.structs.asdict(case.suspect))
                )
                if len(found) == limit:
                    break
        return tuple(reversed(found))

    async def forgive(self, number: int) -> None:
        """Unblock a candidate. Raises NotFound."""
        if (case := self.blame.forgive(number)) is None:
            raise NotFound(f"no candidate with the number {number} is blocked; see: autosched blocked list")
        self._announce([case], forgiven=True)
        await self._journal.write((failure_cases.FORGET, (number,)))


def _words(record: Record) -> str:
    said = record.failure.value if record.failure is not None else ""
    return f"{said}: {record.detail}"[:WORDS_MAX] if record.detail else said


def _statements(finding: Finding) -> tuple[Statement, ...]:
    return (
        *((failure_cases.PUT, checked(case.number, encode(case))) for case in finding.changed),
        *((failure_cases.FORGET, (case.number,)) for case in finding.closed),
    )
