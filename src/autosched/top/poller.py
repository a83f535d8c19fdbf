"""State of a daemon by polling.

A poll requests the present jobs, lanes and devices, and the steps since the last poll, so its cost depends on the
present load and not on the past. All stored data are bounded.
"""

from collections import deque

from autosched.api.connection import Daemon
from autosched.model import JobId, StepId
from autosched.protocol import (
    DaemonInfo,
    JobList,
    ListDevices,
    ListJobs,
    ListSpans,
    Span,
    SpanList,
    UnitList,
)
from autosched.text.visible import everywhere
from autosched.top.changes import news
from autosched.top.daemon_view import ENDED_SHOWN, DaemonView, ordered

JOBS_MAX = 500
STEPS_BEFORE = 500
"""Number of past steps that the first poll requests."""
SPANS_MAX = 4_000
CURVE_POINTS_MAX = 512
NEWS_MAX = 200


class DaemonPoller:
    """Polls, and keeps what it has seen."""

    def __init__(self) -> None:
        self.last: DaemonView | None = None
        self.spans: dict[StepId, Span] = {}
        self.curves: dict[JobId, deque[tuple[float, float]]] = {}
        """Changes of the estimated latency of each shown job, with the moment at which each was seen, in seconds."""
        self.news: deque[tuple[float, str]] = deque(maxlen=NEWS_MAX)
        """Time and text."""

    async def look(self, daemon: Daemon) -> DaemonView:
        """Poll the daemon. Raises AutoschedError."""
        info = everywhere(await daemon.info())
        limit = min(JOBS_MAX, info.jobs_active + ENDED_SHOWN)
        jobs = everywhere((await daemon.link.call(ListJobs(limit=limit), JobList)).jobs)
        units = everywhere((await daemon.link.call(ListDevices(), UnitList)).units)
        now = await self._follow_steps(daemon, info)
        look = DaemonView(info, ordered(jobs), units, now)
        self._note(look)
        return look

    async def _follow_steps(self, daemon: Daemon, info: DaemonInfo) -> float:
        """Request the steps that are new or have ended."""
        if info.steps_started < max(self.spans, default=0):  # another history: its database was replaced
            self.spans.clear()
        running = [step for step, span in self.spans.items() if span.ended_at is None]
        last = max(self.spans, default=max(0, info.steps_started - STEPS_BEFORE))
        after, more, now = min((*running, last + 1)) - 1, True, 0.0
        while more:
            page = everywhere(await daemon.link.call(ListSpans(after=after), SpanList))
            more, now = page.more and bool(page.spans), page.now
            for span in page.spans:
                self.spans[span.step] = span
                after = span.step
        for step in sorted(self.spans)[:-SPANS_MAX]:
            del self.spans[step]
        return now

    def _note(self, look: DaemonView) -> None:
        for words in news(self.last, look):
            self.news.append((look.now, words))
        self.last = look
        shown = {job.job for job in look.jobs}
        for gone in self.curves.keys() - shown:
            del self.curves[gone]
        for job in look.jobs:
            if (whole_s := job.whole_s) is not None:
                curve = self.curves.setdefault(job.job, deque(maxlen=CURVE_POINTS_MAX))
                if not curve or curve[-1][1] != whole_s:
                    curve.append((look.now, whole_s))
