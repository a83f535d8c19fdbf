"""Runs the backend's stages: each step in a separate thread, pinned to the cores of its lease."""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from statistics import median

from msgspec import structs

from autosched import backend
from autosched.backend import (
    Baseline,
    Built,
    Earlier,
    Evaluation,
    Lease,
    Measured,
    Network,
    Session,
    Tuner,
)
from autosched.client import backend_boundary
from autosched.client.away_step import AwayStep, AwayTuner
from autosched.client.plan.blocked_candidates import BlockedCandidates
from autosched.client.plan.known_schedules import first_hints
from autosched.client.plan.rounds import pasts
from autosched.client.plan.task_state import Round
from autosched.client.round_work import SAME_CODE, Keep, RoundWork, Timed
from autosched.errors import DeviceLost, TargetUnfit
from autosched.model import DeviceNote, Failure, JobSpec, Program, Purpose, Record, StepId, TaskIndex, TaskInfo
from autosched.network_status import NOTHING_RECALLED, Recalled
from autosched.records import record_selection, winner
from autosched.records.identity import complete
from autosched.stages import BUILD, PROFILE
from autosched_runtime.cpu_model import cpu_model

log = logging.getLogger(__name__)

Measurer = Tuner | AwayTuner
BOARD_MODEL = "board of the kind {}"
"""`Identity.device` of a board, whose processor only its operator knows."""
RANKED_MAX = 4
"""Maximum number of candidates that rankers give a task of a job without trials."""
LOSSES_MAX = 2
"""A candidate is blamed when the device was lost this many times while it ran."""


class StageRunner:
    """One backend session and the tuners of its tasks. Methods named after stages run in worker threads."""

    def __init__(
        self,
        session: Session,
        spec: JobSpec,
        keep: Callable[[Record], None],
        blocked: BlockedCandidates | None = None,
        timed: Callable[[str], Timed | None] = lambda _: None,
        bring: Callable[[Sequence[Built]], Sequence[Built]] = lambda built: built,
    ) -> None:
        """`timed`: the known timing of the object code with a digest. `bring` downloads the artifacts of builds of
        other hosts. Both, and `keep`, are called from worker threads."""
        self.session = session
        """The backend's session, whose attributes say what it can do."""
        self._blocked = blocked or BlockedCandidates()
        self._spec = spec
        self._keep = keep
        self._timed = timed
        self._bring = bring
        self._tuners: dict[TaskIndex, Tuner] = {}
        self._infos: dict[TaskIndex, TaskInfo] = {}
        self._halves: dict[TaskIndex, list[Measured]] = {}
        """Results of unfinished rounds, not yet passed to their tuners."""
        self._hints: dict[TaskIndex, list[bytes]] = {}
        """Known schedules that the search of a task has yet to measure."""
        self.next_number = 0  # the number of the job's next record
        self._numbering = threading.Lock()
        self.devices = 1
        """Maximum number of devices that share the measurements of a round."""
        self._work: dict[TaskIndex, tuple[Sequence[Built], RoundWork]] = {}
        """The round that each task measures, with its builds."""
        self._sharing = threading.Lock()
        self.on_board = ""
        """Kind of the job's devices if they are boards; empty if they are this machine or a part of it."""
        self._losses: Counter[tuple[TaskIndex, bytes]] = Counter()
        """Number of losses of the device during each candidate."""

    def import_network(
        self, lease: Lease, records: Sequence[Record], borrowed: int = 0, earlier: Sequence[Earlier] = ()
    ) -> Network:
        """Import the model, warm-start from earlier jobs, and make a tuner for each task with all whole rounds of the
        records."""
        network = self.take_in(lease)
        self.make_tuners(network, lease, records, borrowed, earlier)
        return network

    def take_in(self, lease: Lease) -> Network:
        """Import the model."""
        network = backend_boundary.network(self.session.import_network(lease))
        device = BOARD_MODEL.format(self.on_board) if self.on_board else cpu_model()
        known = complete(network.identity, self._spec, device=device, version=backend.version(self._spec.backend))
        return structs.replace(network, identity=known)

    def make_tuners(
        self,
        network: Network,
        lease: Lease,
        records: Sequence[Record],
        borrowed: int = 0,
        earlier: Sequence[Earlier] = (),
        hints: Mapping[TaskIndex, Sequence[bytes]] | None = None,
        recalled: Recalled = NOTHING_RECALLED,
    ) -> None:
        """Warm-start from earlier jobs, and make a tuner for each task with all whole rounds of the records. `hints`:
        candidates that the search of a task measures first."""
        if earlier:
            self._learn(earlier, lease)
        found = pasts(network, self._spec.trials, recalled, records, borrowed)
        for info in network.tasks:
            past = found[info.task]
            done = [record for whole in past.whole for record in whole]
            self._halves[info.task] = [_measured(record) for record in past.half]
            self._tuners[info.task], self._infos[info.task] = self._tuner(info, done), info
            self._hints[info.task] = first_hints((hints or {}).get(info.task, ()), done)

    def _learn(self, earlier: Sequence[Earlier], lease: Lease) -> None:
        """Warm-start from earlier jobs. If the user named none, failures are ignored."""
        try:
            self.session.learn(earlier, lease)
        except Exception as error:  # boundary to plugin code
            if self._spec.learn_from:
                raise
            log.warning("nothing is learned from jobs %s", [one.job for one in earlier], exc_info=error)

    def take_rankers(self, rankers: Mapping[str, bytes]) -> None:
        """Pass the rankers of the job's device model to the backend. Failures are ignored: the search begins without
        them."""
        try:
            self.session.take_rankers(rankers)
        except Exception:  # boundary to plugin code
            log.warning("the rankers %s are not used", list(rankers), exc_info=True)

    def first(self, tasks: Sequence[TaskInfo], lease: Lease) -> dict[TaskIndex, tuple[bytes, ...]]:
        """The first candidates of each task by the rankers. A task whose ranker fails has none."""
        found: dict[TaskIndex, tuple[bytes, ...]] = {}
        for info in tasks:
            try:
                first = backend_boundary.candidates(self.session.first(info, lease), RANKED_MAX)
            except Exception:  # boundary to plugin code
                log.warning("the rankers are not used for %s", info.name, exc_info=True)
                continue
            if first:
                found[info.task] = tuple(first)
        return found

    def tuner(self, task: TaskIndex) -> Tuner:
        """The search of a task."""
        return self._tuners[task]

    def comparable(self) -> list[TaskIndex]:
        """The tasks whose candidates can be compared with each other and with the default."""
        return [task for task in self._tuners if self.default(task) is not None]

    def default(self, task: TaskIndex) -> bytes | None:
        """The candidate of a task without tuning; None if the backend has none."""
        default = self._tuners[task].default()
        return None if default is None else backend_boundary.candidates([default], 1)[0]

    def _tuner(self, info: TaskInfo, records: Sequence[Record]) -> Tuner:
        tuner = backend_boundary.tuner(self.session.tuner(info, self._spec.seed))
        if records:
            tuner.restore(records)
        return tuner

    def select(self, task: TaskIndex, current: Round, lease: Lease) -> int:
        """Choose the round's candidates; returns the number of candidates to measure. An earlier client's round is
        completed."""
        half, tuner = self._halves.get(task, []), self._tuners[task]  # kept until a choice was made
        known, wanted = {one.candidate for one in half}, current.trials + len(half)
        chosen = self._choose(task, wanted, lease)
        if not known.issubset(chosen):  # the round was another one, or the backend's search is not deterministic
            tuner.update(half, lease)
            self._halves.pop(task, None)
            self._hints[task] = [hint for hint in self._hints.get(task, ()) if hint not in known]
            half, chosen = [], self._choose(task, current.trials, lease)
        self._halves.pop(task, None)
        self._hints[task] = [hint for hint in self._hints.get(task, ()) if hint not in chosen]
        current.candidates = [candidate for candidate in chosen if candidate not in known]
        current.measured, current.earlier = half, len(half)
        return len(current.candidates)

    def _choose(self, task: TaskIndex, count: int, lease: Lease) -> list[bytes]:
        """The candidates of a round: known schedules without a measurement first, then the search's selection."""
        first = self._hints.get(task, [])[:count]
        if len(first) == count:
            return first
        chosen = backend_boundary.candidates(self._tuners[task].select(count - len(first), lease), count - len(first))
        return [*first, *(candidate for candidate in chosen if candidate not in first)]

    def build(self, task: TaskIndex, current: Round, lease: Lease, away: AwayStep | None = None) -> None:
        """Build the round's candidates except blocked ones. In finals the default is the last of them.

        `away`: the step is on another host, where a helper builds.
        """
        default = self.default(task) if current.purpose is Purpose.FINAL else None
        if default is not None:
            current.candidates = [*(one for one in current.candidates if one != default), default]
            current.default_last = True
        blocked = self._blocked_of(task, current)
        wanted = [candidate for candidate in current.candidates if candidate not in blocked]
        tuner = self._tuners[task] if away is None else away.tuner(self._infos[task])
        current.built = backend_boundary.built(tuner.build(wanted, lease), wanted) if wanted else ()

    def profile(
        self,
        task: TaskIndex,
        current: Round,
        lease: Lease,
        away: AwayStep | None = None,
        numbers: list[int] | None = None,
    ) -> None:
        """Measure the round's builds or a share of them; each result becomes a record at once.

        `away`: measured by a helper on another host. `numbers` collects the numbers of the records.
        """
        tuner: Measurer = self._tuners[task] if away is None else away.tuner(self._infos[task])
        bring = self._bring if away is None else list
        codes = {one.candidate: one.code for one in current.built}
        default = current.candidates[-1] if current.purpose is Purpose.FINAL else None

        def keep(measured: Measured, *, elsewhere: bool = False) -> int:
            purpose = Purpose.DEFAULT if measured.candidate == default else current.purpose
            device, code = "" if elsewhere else lease.units[0], codes.get(measured.candidate, "")
            current.measured.append(measured)
            number = self._record(task, measured, device, purpose, code)
            if not elsewhere and numbers is not None:
                numbers.append(number)
            return number

        if current.purpose is Purpose.FINAL:
            left = list(current.candidates)
            blocked = self._record_blocked(task, current, left, keep)
            built = [one for one in current.built if one.candidate not in blocked]
            self._compare(lambda some: tuner.compare(bring(some), lease), built, left, keep)
            for candidate in left:
                keep(backend_boundary.unsaid(candidate))
            return
        work = self._work_of(task, current, keep)
        self._measure(lambda some: tuner.profile(bring(some), lease), work, lease.step, keep)

    def blame(self, task: TaskIndex, current: Round, candidate: bytes, device: str, why: str) -> None:
        """Note that the device was lost while a candidate ran. At the second loss the candidate is blamed and gets a
        failed record."""
        if candidate not in current.candidates:
            return
        self._losses[task, candidate] += 1
        if self._losses[task, candidate] >= LOSSES_MAX and current.steps == 1:  # otherwise another step measures it
            detail = f"the device was lost {LOSSES_MAX} times while it ran: {why}"[: backend_boundary.DETAIL_CHARS_MAX]
            crashed = Measured(candidate, (), Failure.RUN_CRASH, detail)
            current.measured.append(crashed)
            code = next((one.code for one in current.built if one.candidate == candidate), "")
            self._record(task, crashed, device, current.purpose, code)

    def _record_blocked(self, task: TaskIndex, current: Round, left: list[bytes], keep: Keep) -> dict[bytes, str]:
        """Fail the candidates that were blocked since they were built."""
        blocked = self._blocked_of(task, current)
        for candidate, reason in blocked.items():
            left.remove(candidate)
            keep(Measured(candidate, (), Failure.BLOCKED, f"blocked: {reason}"[: backend_boundary.DETAIL_CHARS_MAX]))
        return blocked

    def _work_of(self, task: TaskIndex, current: Round, keep: Keep) -> RoundWork:
        """The round's remaining builds; created by the first of the steps that share them."""
        with self._sharing:
            if (known := self._work.get(task)) is not None and known[0] is current.built:
                return known[1]
            left = list(current.candidates)
            blocked = self._record_blocked(task, current, left, keep)
            built = [one for one in current.built if one.candidate not in blocked]
            there = {one.candidate for one in built}
            for candidate in [one for one in left if one not in there]:
                keep(backend_boundary.unsaid(candidate))
            devices = self.devices if current.is_search else 1
            work = RoundWork(built, self._timed, devices=devices, copies=current.is_search)
            self._work[task] = current.built, work
            return work

    def unknown_codes(self, current: Round) -> list[str]:
        """Digests of the round's code for which this job knows no latency."""
        if not (current.is_search or self._only_known):
            return []
        codes = dict.fromkeys(one.code for one in current.built if one.code)
        return [code for code in codes if self._timed(code) is None]

    @property
    def _only_known(self) -> bool:
        """Whether the job has no trials: its finals need no measurement if all of their code was measured."""
        return self._spec.trials == 0

    def _measure(self, profile: Callable[[Sequence[Built]], object], work: RoundWork, step: StepId, keep: Keep) -> None:
        """Measure the builds that a step takes from a round."""
        unmeasured: dict[bytes, Built] = {}
        try:
            while taken := work.take(step, keep):
                unmeasured = {one.candidate: one for one in taken}
                wanted = list(unmeasured)
                for answer in backend_boundary.each(profile(taken)):
                    measured = backend_boundary.measured(answer, wanted)
                    work.measured(step, unmeasured.pop(measured.candidate), measured, keep)
                for candidate in wanted:
                    work.measured(step, unmeasured.pop(candidate), backend_boundary.unsaid(candidate), keep)
        finally:
            work.leave(step, list(unmeasured.values()))

    def _compare(
        self,
        compare: Callable[[Sequence[Built]], object],
        built: Sequence[Built],
        left: list[bytes],
        keep: Keep,
    ) -> None:
        """Measure the finalists and the default in turns, each object code once; records in their order."""
        alone: dict[str | bytes, Built] = {}
        for one in built:
            alone.setdefault(one.code or one.candidate, one)
        found: dict[str | bytes, Measured] = {}
        known = {one.code: self._timed(one.code) for one in built if one.code} if self._only_known else {}
        elsewhere = bool(built) and all(known.get(one.code) is not None for one in built)
        if elsewhere:
            for code, timed in known.items():
                assert timed is not None
                found[code] = Measured(b"", timed.latency_s, None, SAME_CODE.format(timed.source))
        elif alone:
            codes = {one.candidate: one.code or one.candidate for one in alone.values()}
            wanted = [one.candidate for one in alone.values()]
            for answer in backend_boundary.each(compare(list(alone.values()))):
                measured = backend_boundary.measured(answer, wanted)
                found[codes[measured.candidate]] = measured
        for one in built:
            of_code = one.code or one.candidate
            answered = found.get(of_code)
            left.remove(one.candidate)
            if answered is None:
                keep(backend_boundary.unsaid(one.candidate))
                continue
            number = keep(structs.replace(answered, candidate=one.candidate), elsewhere=elsewhere)
            if answered.latency_s and not answered.detail:
                found[of_code] = structs.replace(answered, detail=SAME_CODE.format(f"record {number}"))

    def _blocked_of(self, task: TaskIndex, current: Round) -> dict[bytes, str]:
        """The round's blocked candidates, with reasons. The default is never blocked."""
        asked = current.candidates[:-1] if current.default_last else current.candidates
        return {candidate: reason for candidate in asked if (reason := self._blocked.reason(task, candidate))}

    def _record(self, task: TaskIndex, measured: Measured, device: str, purpose: Purpose, code: str = "") -> int:
        """Number a record and pass it on under a lock: the daemon refuses numbers that arrive out of order."""
        with self._numbering:
            self._keep(
                Record(
                    task=task,
                    number=self.next_number,
                    candidate=measured.candidate,
                    latency_s=measured.latency_s,
                    failure=measured.failure,
                    detail=measured.detail,
                    unit=device,
                    build_s=measured.build_s,
                    profile_s=measured.profile_s,
                    purpose=purpose,
                    code=code,
                )
            )
            self.next_number += 1
            return self.next_number - 1

    def update(self, task: TaskIndex, current: Round, lease: Lease) -> float | None:
        """Update the search with the round; returns its best latency in seconds."""
        measured = current.measured
        if current.purpose is Purpose.AGAIN:  # a repeated failure teaches nothing new
            measured = [one for one in measured if one.latency_s]
        if measured or current.purpose is not Purpose.AGAIN:
            self._tuners[task].update(measured, lease)
        return min((median(m.latency_s) for m in measured if m.latency_s), default=None)

    def compile(
        self, records: Sequence[Record], lease: Lease, elsewhere: Mapping[TaskIndex, winner.Ratios] | None = None
    ) -> None:
        """Compile the network with the best schedules. `elsewhere`: ratios of candidates on other devices."""
        self.session.compile(winner.order(record_selection.effective(records), elsewhere), lease)

    def evaluate(self, lease: Lease) -> Evaluation:
        """Check and measure the compiled network. Schedules with wrong results in it become failed records."""
        evaluation = backend_boundary.evaluation(self.session.evaluate(lease))
        for one in evaluation.wrong:
            if one.task in self._tuners:
                detail = one.detail[: backend_boundary.DETAIL_CHARS_MAX]
                wrong = Measured(one.candidate, (), Failure.WRONG_RESULT, detail)
                self._record(one.task, wrong, lease.units[0], Purpose.NETWORK)
        return evaluation

    def sentinel(self, lease: Lease) -> DeviceNote | None:
        """The present speed of a lease's board; None if the backend has no sentinel. Raises DeviceLost,
        and TargetUnfit."""
        try:
            found = self.session.sentinel(lease)
            return None if found is None else backend_boundary.sentinel(found)
        except (DeviceLost, TargetUnfit):
            raise
        except Exception:  # boundary to plugin code: the step's own work reports more
            log.warning("the sentinel failed on %s", lease.units[0], exc_info=True)
            return None

    def baseline(self, lease: Lease) -> Baseline | None:
        """Measure the engine that the user would run otherwise; None if there is none."""
        return backend_boundary.baseline(self.session.baseline(lease))

    def compile_early(
        self, records: Sequence[Record], lease: Lease, elsewhere: Mapping[TaskIndex, winner.Ratios] | None = None
    ) -> None:
        """Compile the network with the best schedules so far."""
        self.session.compile_early(winner.order(record_selection.effective(records), elsewhere), lease)

    def evaluate_early(self, lease: Lease) -> Evaluation:
        """Check and measure the network that was compiled during the search."""
        return backend_boundary.evaluation(self.session.evaluate_early(lease))

    @property
    def divisible(self) -> tuple[str, ...]:
        """Stages whose work several steps may share."""
        return (PROFILE,) if self.session.parallel_profile else ()

    @property
    def movable(self) -> tuple[str, ...]:
        """Stages that helpers on other hosts can run."""
        return (BUILD, PROFILE) if self.session.movable else ()

    def program(self, task: TaskInfo) -> Program | None:
        """The program of a workload; None if the backend has none or fails, or if the program is too large."""
        try:
            return backend_boundary.program(self.session.program(task))
        except Exception:  # programs are for other jobs: a failure does not end this one
            log.warning("the program of %s is not kept", task.name, exc_info=True)
            return None

    def kill(self, lease: Lease | None = None) -> None:
        """Kill the processes that work for a lease, or for all leases."""
        self.session.kill(lease)


def _measured(record: Record) -> Measured:
    """A record as the measurement that the backend returned."""
    return Measured(record.candidate, record.latency_s, record.failure, record.detail, record.build_s, record.profile_s)
