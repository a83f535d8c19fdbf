"""Data of the records page: what the record store has, by operator, network and device, with the origin."""

from collections.abc import Callable
from typing import TypeVar

import msgspec
from aiohttp import web
from msgspec import Struct

from autosched.daemon.storage.store_reader import StoreReader
from autosched.errors import RequestError
from autosched.recordstore.catalogue import Catalogue, Filter
from autosched.recordstore.rows import KnownWorkload, Neighbour, Schedule, Workload

WORKLOADS_MAX = 200
"""Maximum workloads of an answer."""
FASTEST = 20
NEAREST = 6
HISTORY_MAX = 4_000
"""Maximum measurements of one workload in its chart, the latest of all."""
TEXT_MAX = 200
"""Maximum characters of a searched word."""
T = TypeVar("T")


class _Row(Struct, frozen=True):
    """A workload in one environment."""

    workload: str
    name: str
    shape: str
    flops: float
    device: str
    backend: str
    compiler: str
    tried: int
    failed: int
    measured_at: float
    best: "_Found | None"


class _Found(Struct, frozen=True):
    """A schedule, with its origin."""

    schedule: str
    """First digits of the schedule's digest."""
    best_s: float | None
    interval_s: tuple[float, float] | None
    standing: str
    measured_at: float
    device: str
    backend: str
    compiler: str
    job: int
    name: str
    network: str
    owner: str
    host: str
    own: bool
    """Whether this daemon measured the schedule, so that the job has a page."""
    imported: bool


class RecordsPage:
    """Answers requests from the record store."""

    def __init__(self, reader: StoreReader | None, origin: str) -> None:
        """`reader`: None without a record store. `origin`: name of the daemon's own database there."""
        self._reader, self._origin = reader, origin

    async def search(self, request: web.Request) -> web.Response:
        """The latest workloads that match."""
        texts = {name: request.query.get(name, "") for name in Filter.__struct_fields__}
        if any(len(text) > TEXT_MAX for text in texts.values()):
            raise RequestError(f"a word has more than {TEXT_MAX} characters")
        wanted = Filter(**texts)
        found = await self._ask(lambda known: known.workloads(wanted, WORKLOADS_MAX + 1))
        beyond = list(dict.fromkeys(one.workload.hash for one in found))[WORKLOADS_MAX:]
        rows = [self._row(one) for one in found if one.workload.hash not in beyond]
        return _json({"workloads": rows, "more": bool(beyond)})

    async def workload(self, request: web.Request) -> web.Response:
        """One workload: the fastest schedules, the history of its latency, similar workloads."""
        name = request.match_info["workload"]

        def about(known: Catalogue) -> tuple[Workload, list[Schedule], list[Schedule], list[Neighbour]]:
            workload = known.workload(name)
            return (
                workload, known.fastest(workload.hash, k=FASTEST), known.history(workload.hash, HISTORY_MAX),
                known.nearest(workload, NEAREST),
            )  # fmt: skip

        workload, fastest, history, nearest = await self._ask(about)
        return _json(
            {
                "workload": workload, "fastest": [self._found(one) for one in fastest],
                "history": falling(history), "nearest": [one.workload for one in nearest],
            }
        )  # fmt: skip

    async def _ask(self, query: Callable[[Catalogue], T]) -> T:
        if self._reader is None:
            raise RequestError('this daemon has no record store: records.url is "off" in its settings')
        found = await self._reader.ask(lambda reader: query(reader.catalogue()))
        if found is None:
            text = msgspec.json.encode({"error": self._reader.trouble, "code": "store_unavailable"}).decode()
            raise web.HTTPServiceUnavailable(text=text, content_type="application/json")
        return found

    def _row(self, one: KnownWorkload) -> _Row:
        where, workload = one.environment, one.workload
        return _Row(
            workload.hash, workload.name, workload.shape, workload.flops, where.device, where.backend, where.compiler,
            one.tried, one.failed, one.measured_at, None if one.best is None else self._found(one.best),
        )  # fmt: skip

    def _found(self, one: Schedule) -> _Found:
        where, job = one.environment, one.job
        return _Found(
            one.identifier, one.best_s, one.interval_s, one.standing.name.lower(),
            one.measured_at, where.device, where.backend, where.compiler, job.number, job.name, job.network, job.owner,
            one.origin.detail, one.origin.name == self._origin, one.origin.imported,
        )  # fmt: skip


def falling(history: list[Schedule]) -> dict[str, list[tuple[float, float]]]:
    """For each device model, the best latency over time: Unix time and latency in seconds."""
    found: dict[str, list[tuple[float, float]]] = {}
    for one in sorted(history, key=lambda one: one.measured_at):
        if one.best_s is None or not one.measured_at:
            continue
        points = found.setdefault(one.environment.device or "device not known", [])
        if not points or one.best_s < points[-1][1]:
            points.append((one.measured_at, one.best_s))
    return found


def _json(body: object) -> web.Response:
    response = web.Response(body=msgspec.json.encode(body), content_type="application/json")
    response.enable_compression()
    return response
