"""Sends changes to all viewers of the page, once a second, as server-sent events.

One frame of changes is made for all viewers. A viewer that has not taken the last frame skips the next ones, and is
then told to reload everything; no viewer is waited for, and each costs a frame or two of memory. A viewer that takes
nothing at all is disconnected.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field

from aiohttp import web

from autosched.daemon.runtime import spawn
from autosched.daemon.web.overview_page import OverviewPage

PULSE_S = 1.0
VIEWERS_MAX = 64
PATIENCE_S = 30.0
"""Seconds after which a viewer that does not take a frame is disconnected."""
ANEW = b"event: anew\ndata: {}\n\n"


@dataclass(eq=False, slots=True)
class Viewer:
    """A viewer of the page."""

    response: web.StreamResponse
    cut: Callable[[], None]
    """Breaks the connection."""
    may_stay: Callable[[], bool]
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    frame: bytes = b""
    """The frame that is being sent."""
    since: float = 0.0
    behind: bool = False


class Feed:
    """All viewers. Does nothing while there is none."""

    def __init__(self, board: OverviewPage) -> None:
        self._board = board
        self._viewers: dict[Viewer, None] = {}
        self._pulsing: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._viewers)

    async def attend(self, request: web.Request, may_stay: Callable[[], bool]) -> web.StreamResponse:
        """Serve one viewer until the viewer disconnects or may not stay."""
        if len(self._viewers) >= VIEWERS_MAX:
            raise web.HTTPServiceUnavailable(text=f"{VIEWERS_MAX} pages look already\n", headers={"Retry-After": "30"})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        await response.prepare(request)
        transport = request.transport
        assert transport is not None, "the answer has begun"
        viewer = Viewer(response, transport.abort, may_stay)
        self._viewers[viewer] = None
        if self._pulsing is None:
            self._board.open()
            self._pulsing = spawn(self._pulse(), "the page's feed")
        try:
            await response.write(b"retry: 2000\n\n")
            await viewer.gone.wait()
        finally:
            del self._viewers[viewer]
        return response

    def close(self) -> None:
        """Disconnect all viewers."""
        for viewer in self._viewers:
            viewer.gone.set()

    async def _pulse(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._viewers:
                await asyncio.sleep(PULSE_S)
                frame = b"data: " + await self._board.pulse() + b"\n\n"
                for viewer in list(self._viewers):
                    if not viewer.may_stay():
                        viewer.gone.set()
                    elif viewer.frame:
                        viewer.behind = True
                        if loop.time() - viewer.since > PATIENCE_S:
                            viewer.gone.set()
                            viewer.cut()
                    else:
                        viewer.frame, viewer.since = ANEW if viewer.behind else frame, loop.time()
                        viewer.behind = False
                        spawn(self._send(viewer), "a frame of the page")
        finally:
            self._pulsing = None
            self._board.close()
            self.close()  # after an error, which is in the log: the viewers reconnect and start over

    async def _send(self, viewer: Viewer) -> None:
        with contextlib.suppress(ConnectionError, RuntimeError):
            await viewer.response.write(viewer.frame)
            viewer.frame = b""
            return
        viewer.gone.set()
