"""The job's helpers: processes on other hosts that run steps for its client."""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

from autosched.backend import Built
from autosched.client.away_step import AwayStep, HelperLost
from autosched.client.daemon_session import DaemonSession
from autosched.client.moved_builds import MovedBuilds
from autosched.model import OWN_HOST, StepId, UnitName, host_of
from autosched.protocol import (
    Done,
    ForgetMoved,
    PartEnded,
    PartResult,
    RevokeStep,
    RunElsewhere,
    StartStep,
    StopElsewhere,
)

log = logging.getLogger(__name__)

USELESS_MAX = 3
"""Maximum helpers in a row that end without having done anything; then the client's stages stay on its own host."""


class Helpers:
    """Steps on other hosts, and the builds that move there and back."""

    def __init__(self, line: DaemonSession, workdir: Path) -> None:
        self._line = line
        self._builds = MovedBuilds(line, workdir / "moved")
        self._loop = asyncio.get_running_loop()
        self._parts: dict[tuple[StepId, int], asyncio.Future[PartResult]] = {}
        """Parts of steps that helpers run."""
        self._useless = 0
        """Number of helpers in a row that did nothing."""
        self.host = OWN_HOST
        """Host of this client."""

    @property
    def are_of_use(self) -> bool:
        """Whether stages may run on other hosts."""
        return self._useless < USELESS_MAX

    def is_away(self, units: Sequence[UnitName]) -> bool:
        """Whether the units of a step belong to another host, where a helper runs the step."""
        return host_of(units[0]) != self.host

    def begin(self, order: StartStep) -> AwayStep | None:
        """A step that a helper runs; None for a step on this host."""
        if not self.is_away(order.step.units):
            return None
        return AwayStep(order.step.id, self._builds, self._run, sentinel=order.sentinel)

    def stop(self, order: RevokeStep) -> None:
        """Have a helper end a step. The daemon ends a helper that does not react."""
        self._line.mention(StopElsewhere(step=order.step, reason=order.reason))

    def worked(self, away: AwayStep | None) -> None:
        """Note that a step has done its work, if a helper ran it."""
        if away is not None:
            self._useless = 0

    def lost(self, loss: HelperLost) -> bool:
        """Note that a helper was lost; returns whether stages stay on this host from now on."""
        self._useless += loss.useless
        if not loss.useless or self._useless != USELESS_MAX:
            return False
        log.error("all stages stay on this host: %d helpers in a row did nothing", USELESS_MAX)
        return True

    def part_ended(self, method: PartEnded) -> None:
        """Take the result of a part of a step."""
        if (waiting := self._parts.get((method.step, method.part))) is not None and not waiting.done():
            waiting.set_result(method.ended)

    async def _run(self, order: RunElsewhere) -> PartResult:
        """Have a helper run a part of a step. After a reconnect to the daemon, the request is repeated."""
        ended: asyncio.Future[PartResult] = asyncio.get_running_loop().create_future()
        self._parts[order.step, order.part] = ended
        try:
            while not ended.done():
                returns = self._line.returns
                await self._line.ask(order, Done)
                back = asyncio.ensure_future(self._line.wait_return(returns))
                waiting: set[asyncio.Future[PartResult] | asyncio.Future[None]] = {ended, back}
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                back.cancel()
            return ended.result()
        finally:
            del self._parts[order.step, order.part]

    def bring(self, builts: Sequence[Built]) -> Sequence[Built]:
        """Download the artifacts of builds; called from worker threads."""
        return asyncio.run_coroutine_threadsafe(self._builds.bring_all(builts), self._loop).result()

    def forget(self, builts: Sequence[Built]) -> None:
        """Forget builds of a round that is measured."""
        if files := self._builds.forget(builts):
            self._line.mention(ForgetMoved(files=files))
