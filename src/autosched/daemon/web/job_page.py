"""Data of the page of one job: its state, the curves of its latency, and its report."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec
from aiohttp import web

from autosched.backend import EVALUATION, Evaluation
from autosched.daemon.access.peer_identity import Principal
from autosched.daemon.operations.user_session import UserSession
from autosched.daemon.web.web_services import WebServices
from autosched.errors import NotFound
from autosched.model import JobId, Purpose, Record
from autosched.network_status import expected_s
from autosched.protocol import CHUNK_BYTES, ExplainJob, Explanation, GetBlob, GetJob, JobView, Span
from autosched.protocol.roles import Role
from autosched.records.network_estimate import network_s
from autosched.records.task_best import Measurement, TaskBest
from autosched.report import Report, gather, page

POINTS_MAX = 400
"""Maximum number of points of a curve; more cannot be seen."""
REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'"
"""Content policy of the report: its own style, and no script."""
READER = Principal("the page", Role.VIEWER)
T = TypeVar("T")


class JobPages:
    """Answers requests about one job, with the content that the wire protocol would give."""

    def __init__(self, shown: WebServices) -> None:
        self._services = shown.services
        self._session = UserSession(shown.services, READER)

    async def job(self, request: web.Request) -> web.Response:
        """The whole view of the job, and why it waits."""
        job = _number(request)
        view = await self._view(job)
        lines = (await self._ask(ExplainJob(job=job), Explanation)).lines
        body = {"job": view, "explained": lines}
        return web.Response(body=msgspec.json.encode(body), content_type="application/json")

    async def curves(self, request: web.Request) -> web.Response:
        """Latency of the network and of each task, by time and by trials."""
        gathered, records = await self._gathered(_number(request), None)
        body = await asyncio.to_thread(_curves, gathered, records)
        return web.Response(body=body, content_type="application/json")

    async def report(self, request: web.Request) -> web.Response:
        """The report that the job's user gets at its end."""
        job = _number(request)
        gathered, _ = await self._gathered(job, await self._evaluation(job))
        text = await asyncio.to_thread(page, gathered)
        return web.Response(text=text, content_type="text/html", headers={"Content-Security-Policy": REPORT_POLICY})

    async def _ask(self, method: GetJob | ExplainJob, kind: type[T]) -> T:
        answer = await self._session.answer(method)
        assert isinstance(answer, kind)
        return answer

    async def _view(self, job: JobId) -> JobView:
        return await self._ask(GetJob(job=job), JobView)

    async def _gathered(self, job: JobId, evaluation: Evaluation | None) -> tuple[Report, list[Record]]:
        view, records, more = await self._view(job), list[Record](), True
        while more:
            some = await self._services.store.records(job, len(records))
            records, more = [*records, *some.records], some.more
        health = {unit: watch.health(view.now) for unit, watch in self._services.monitor.all.items()}
        spans = await self._near(view)
        return await asyncio.to_thread(gather, view, evaluation, records, spans, health), records

    async def _near(self, view: JobView) -> list[Span]:
        """The steps during the job's time, running ones included."""
        timeline, store = self._services.runtime.timeline, self._services.store
        after, more = 0, True
        found = list[Span]()
        while more:
            spans, more = await store.spans_since(after, view.submitted_at, timeline.longest_s)
            found += spans
            if not spans or spans[-1].started_at > (view.ended_at or view.now):
                break
            after = spans[-1].step
        return [*found, *timeline.running.values()]

    async def _evaluation(self, job: JobId) -> Evaluation | None:
        for artifact in await self._services.store.artifacts(job):
            if artifact.name == EVALUATION:
                body = b""
                while len(body) < artifact.bytes:
                    piece = await self._services.blobs.get(GetBlob(sha256=artifact.sha256, offset=len(body)))
                    body += piece.data[:CHUNK_BYTES]
                return msgspec.json.decode(body, type=Evaluation)
        return None


def _number(request: web.Request) -> JobId:
    number = request.match_info["job"]
    if len(number) > 15:
        raise NotFound(f"there is no job {number}")
    return int(number)


def _curves(gathered: Report, records: Sequence[Record]) -> bytes:
    by_trials = _by_trials(gathered.job, records)
    body = {
        "estimates": {
            "time": _thinned([(point.at_s, point.best_s) for point in gathered.estimates]),
            "trials": _thinned(by_trials.pop(0, [])),
        },
        "tasks": {
            task: {
                "time": _thinned([(point.at_s, point.best_s) for point in points]),
                "trials": _thinned(by_trials.get(int(task), [])),
            }
            for task, points in gathered.task_curves.items()
        },
    }
    return msgspec.json.encode(body)


def _by_trials(job: JobView, records: Iterable[Record]) -> dict[int, list[tuple[float, float]]]:
    """Best latencies by the job's number of trials until then; key 0 is the whole network, with the present estimate of
    its rest."""
    best: defaultdict[int, TaskBest] = defaultdict(TaskBest)
    known_s: dict[int, float] = {}
    untuned_s = {task.task: task.untuned_s for task in job.tasks if task.untuned_s is not None}
    curves: dict[int, list[tuple[float, float]]] = {}
    trials = 0
    for record in records:
        trials += record.purpose is Purpose.TRIAL
        best[record.task].add(Measurement.of(record))
        best_s = best[record.task].best_s
        if best_s is not None and best_s != known_s.get(record.task):
            known_s[record.task] = best_s
            curves.setdefault(record.task, []).append((trials, best_s))
            tasks_s = network_s(job.tasks, untuned_s | known_s)
            if (whole_s := expected_s(tasks_s, job.comparison)) is not None:
                curves.setdefault(0, []).append((trials, whole_s))
    return curves


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The first point, the last one and evenly chosen ones between."""
    if len(points) <= POINTS_MAX:
        return list(points)
    step = (len(points) - 1) / (POINTS_MAX - 1)
    return [points[round(number * step)] for number in range(POINTS_MAX)]
