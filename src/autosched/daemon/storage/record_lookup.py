"""Answers clients' questions about workloads from the record store."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from functools import partial
from math import inf
from pathlib import Path

from msgspec import Struct

from autosched.daemon.storage.store_reader import StoreReader
from autosched.model import JobId
from autosched.protocol import (
    CHUNK_BYTES,
    AddProgram,
    GetKnown,
    GetRanker,
    GetTimings,
    KnownSchedule,
    KnownSchedules,
    KnownTiming,
    KnownTimings,
    RankerPart,
    Rankers,
)
from autosched.recordstore.keys import Environment, candidate_digest, environment
from autosched.recordstore.rows import Schedule, Standing, Workload

CATCH_UP_S = 3.0
"""Maximum seconds that a job waits for measurements that end when it starts."""
ANSWER_BYTES = 256 * 1024
"""Maximum bytes of an answer; one more schedule still fits a frame."""
SPARE = 4
"""Number of hints fetched for each wanted one, because hints of several devices compete."""


class Asking(Struct, frozen=True):
    """The job that asks."""

    number: JobId
    owner: str
    backend: str
    """Name of its backend."""


class RecordLookup:
    """Queries to the record store of one daemon."""

    def __init__(
        self,
        url: str | Path,
        origin: str,
        caught_up: Callable[[float], Awaitable[None]],
        is_operator: Callable[[str], bool],
    ) -> None:
        """`url`: URL or file of the store. `origin`: name of the daemon's own database in the store. `caught_up`: waits
        until the store has all records of that database; its argument is the maximum duration in seconds.
        `is_operator`: whether the owner of a job is an operator of this daemon."""
        self._origin, self._caught_up, self._is_operator = origin, caught_up, is_operator
        self._met: set[JobId] = set()
        self._reader = StoreReader(url, "jobs go on without what it knows")

    async def known(self, asked: GetKnown, job: Asking) -> KnownSchedules:
        """Known schedules for a task of a job; `trouble` says why if the store does not answer.

        The job's first question waits for records that are not in the store yet.
        """
        if job.number not in self._met:
            self._met.add(job.number)
            await self._caught_up(CATCH_UP_S)
        found = await self._reader.ask(partial(self._known, asked, job))
        return KnownSchedules(trouble=self._reader.trouble) if found is None else found

    async def timings(self, asked: GetTimings, job: Asking) -> KnownTimings:
        """Latencies of object code; empty if the store does not answer."""
        return await self._reader.ask(partial(self._timings, asked, job)) or KnownTimings({})

    async def unknown_programs(self, workloads: Collection[str]) -> Collection[str]:
        """Workloads whose program the store lacks; empty if it does not answer."""
        return await self._reader.ask(lambda reader: reader.catalogue().without_program(workloads)) or ()

    async def add_program(self, method: AddProgram) -> None:
        """Store the program of a workload; dropped if the store does not answer."""
        await self._reader.ask(partial(self._add_program, method))

    async def rankers(self, device: str) -> Rankers:
        """The operator families with a ranker for a device model; none if the store does not answer."""
        found = await self._reader.ask(lambda reader: reader.catalogue().rankers())
        return Rankers(tuple(one.family for one in found or () if one.device == device))

    async def ranker(self, asked: GetRanker) -> RankerPart:
        """A part of a ranker; an empty one if the store does not answer."""
        found = await self._reader.ask(lambda reader: reader.catalogue().ranker(asked.family, asked.device))
        content = found.content if found is not None else b""
        return RankerPart(content[asked.after : asked.after + CHUNK_BYTES], len(content))

    def close(self) -> None:
        """Close the connections without waiting."""
        self._reader.close()

    # In the thread ----------------------------------------------------------------------------------------------------

    def _add_program(self, method: AddProgram, reader: StoreReader) -> None:
        """Raises StoreUnavailable."""
        task = method.task
        reader.store().add_programs({Workload(task.workload, task.name, task.shape, task.flops): method.program})

    def _timings(self, asked: GetTimings, job: Asking, reader: StoreReader) -> KnownTimings:
        """Raises StoreUnavailable."""
        here = environment(asked.identity, job.backend)
        found: dict[str, Schedule] = {}
        for one in reader.catalogue().of_code(asked.codes, here):
            before = found.get(one.code)
            if self._holds(one, here, job) and (before is None or one.standing > before.standing):
                found[one.code] = one
        return KnownTimings(
            {code: KnownTiming(one.samples_s, source(one, self._origin)) for code, one in found.items()}
        )

    def _known(self, asked: GetKnown, job: Asking, reader: StoreReader) -> KnownSchedules:
        """Raises StoreUnavailable."""
        lookup = reader.catalogue()
        here = environment(asked.identity, job.backend, asked.template)
        strict = lookup.best(asked.workload, here, asked.count)
        own = [one for one in strict if self._holds(one, here, job)]
        loose = lookup.hints(asked.workload, here, SPARE * asked.count)
        told = {one.candidate for one in own}
        reported = lookup.failed(asked.workload, here) if loose else []
        failed = {digest for digest, by, origin in reported if self._believes(by, origin, job.owner)}
        hints = [one for one in loose if one.candidate not in told and candidate_digest(one.candidate) not in failed]
        ratios = ratios_elsewhere([*strict, *loose], here.device)
        left, answer = ANSWER_BYTES, []
        for schedules in (own, promising(hints)[: asked.count]):
            kept = []
            for one in schedules:
                if left > 0:
                    kept.append(_told(one, self._origin, ratios.get(one.candidate, 0.0)))
                    left -= len(one.candidate) + 9 * len(one.samples_s)
            answer.append(tuple(kept))
        tried = lookup.tried(asked.workload, here) if own else 0
        return KnownSchedules(answer[0], tried, answer[1])

    def _holds(self, one: Schedule, here: Environment, job: Asking) -> bool:
        """Whether a latency can replace a measurement of this job: undisturbed, of the same device model, measured by a
        daemon and by another job of the same owner, or of an operator."""
        return (
            one.environment.device == here.device
            and not one.origin.imported
            and one.standing in (Standing.SEARCHED, Standing.COMPARED)
            and (one.origin.name, one.job.number) != (self._origin, job.number)
            and self._trusts(one, job.owner)
        )

    def _trusts(self, one: Schedule, owner: str) -> bool:
        """Whether a job of an owner may rely on a measurement: clients report what they want, and other owners' reports
        are hints. Operators of this daemon are trusted; jobs before there were owners are of one."""
        return self._believes(one.job.owner, one.origin.name, owner)

    def _believes(self, by: str, origin: str, owner: str) -> bool:
        return by == owner or (origin == self._origin and (not by or self._is_operator(by)))


def ratios_elsewhere(schedules: Iterable[Schedule], device: str) -> dict[bytes, float]:
    """The least ratio of each schedule on other device models, see `_ratios`."""
    found: dict[bytes, float] = {}
    for ratio, one in _ratios(one for one in schedules if one.environment.device != device):
        found[one.candidate] = min(ratio, found.get(one.candidate, inf))
    return found


def promising(schedules: Iterable[Schedule]) -> list[Schedule]:
    """One schedule of each candidate by ascending ratio; of equal ratios the latest measurement first."""
    ordered = sorted(_ratios(schedules), key=lambda pair: (pair[0], -pair[1].measured_at, pair[1].candidate))
    first: dict[bytes, Schedule] = {}
    for _, one in ordered:
        first.setdefault(one.candidate, one)
    return list(first.values())


def _ratios(schedules: Iterable[Schedule]) -> Iterator[tuple[float, Schedule]]:
    """Valid schedules, each with its latency divided by the best one of its environment.

    Latencies of two devices cannot be compared. CLBlast chooses defaults for unknown devices the same way: relative to
    each device's own best.
    """
    by_environment: defaultdict[Environment, list[tuple[float, Schedule]]] = defaultdict(list)
    for one in schedules:
        if one.best_s is not None:
            by_environment[one.environment].append((one.best_s, one))
    for some in by_environment.values():
        least_s = min(best_s for best_s, _ in some)
        yield from ((best_s / least_s, one) for best_s, one in some)


def _told(one: Schedule, origin: str, elsewhere: float) -> KnownSchedule:
    return KnownSchedule(
        candidate=one.candidate, latency_s=one.samples_s, compared=one.standing is Standing.COMPARED, code=one.code,
        measured_at=one.measured_at, elsewhere=elsewhere, source=source(one, origin),
    )  # fmt: skip


def source(one: Schedule, origin: str) -> str:
    """The origin of a schedule in words. `origin`: name of the daemon's own database."""
    if one.origin.imported:
        return f"imported from {one.origin.detail or one.origin.name}"
    network = f" ({one.job.network})" if one.job.network else ""
    where = "" if one.origin.name == origin else f" of {one.origin.detail or 'another daemon'}"
    return f"job {one.job.number}{where}{network}"
