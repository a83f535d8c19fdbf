"""Helpers: processes that run stages of a job on other hosts than the client's, one for each job and host.

A helper starts when the first step of its job is leased a unit of its host, and ends with the job's client. Only the
client reports steps and records: it sends parts of steps to its helpers through the daemon, and gets their results
back. When a helper is lost, its parts are lost: the daemon tells the client, which ends their steps.
"""

import asyncio
import hmac
import logging
import secrets
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from msgspec.structs import replace

from autosched.daemon.answers import ANSWERS, Caller
from autosched.daemon.clients.client_session import ClientSession, Parts
from autosched.daemon.clients.memory_limit import MemoryLimit
from autosched.daemon.runtime import spawn
from autosched.errors import AutoschedError, DaemonUnreachable, Refused
from autosched.launch import ClientProcess
from autosched.model import HostName, JobId, Step, StepId
from autosched.protocol import (
    CLIENT_METHODS,
    SILENCE_S,
    Hello,
    PartEnded,
    PartLease,
    PartResult,
    Return,
    RevokeStep,
    RunElsewhere,
    StopElsewhere,
)
from autosched.wire.link import Link

log = logging.getLogger(__name__)

ORDER_S = 10.0
"""Seconds within which a helper accepts an order."""
STARTS_S = 60.0
"""Seconds within which a helper connects after its start, and reconnects after it was cut off."""
LOOK_S = 0.5
"""Seconds between two checks of a host that cannot be reached."""
Part = tuple[StepId, int]


@dataclass(eq=False)
class Helper:
    """One helper of a job."""

    job: JobId
    host: HostName
    token: str
    process: ClientProcess | None = None
    temporary: str = ""
    link: Link | None = None
    parts: dict[Part, RunElsewhere] = field(default_factory=dict)
    """Parts of steps that run on the helper, or wait for it."""
    worked: bool = False
    """Whether the helper has ended a part."""
    end_reason: str = ""
    """Why the daemon ends it; empty if it does not."""
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def where(self) -> str:
        """Its host, for people."""
        return self.host or "the daemon's own host"


class HelperRegistry:
    """All helpers since the daemon started."""

    def __init__(
        self,
        parts: Parts,
        launch: Callable[[Helper], tuple[ClientProcess, str]],
        tell: Callable[[JobId, PartEnded], None],
        memory: MemoryLimit,
    ) -> None:
        """`launch` starts the process of a helper, and returns it with its temporary folder; `tell` notifies a job's
        client."""
        self._parts, self._launch, self._tell, self._memory = parts, launch, tell, memory
        self._runtime, self._files = parts.runtime, parts.moved
        self._helpers: dict[JobId, dict[HostName, Helper]] = {}
        self._ended: dict[Part, PartResult] = {}

    def of(self, job: JobId) -> tuple[HostName, ...]:
        """Hosts on which the job has helpers."""
        return tuple(self._helpers.get(job, ()))

    # Calls of clients -------------------------------------------------------------------------------------------------

    def run(self, job: JobId, method: RunElsewhere) -> None:
        """Let a helper run a part of a step. Raises Refused unless the step is the job's and runs on another host."""
        part, state = (method.step, method.part), self._runtime.state
        if (known := self._ended.get(part)) is not None:
            return self._tell(job, PartEnded(step=method.step, part=method.part, ended=known))
        step = state.steps.get(method.step)
        if step is None or step.job != job or state.host_of(step) == state.jobs[job].host:
            raise Refused(f"stale step: job {job} runs no step {method.step} on another host")
        host = state.host_of(step)
        helpers = self._helpers.setdefault(job, {})
        if (helper := helpers.get(host)) is None:
            helper = helpers[host] = Helper(job, host, secrets.token_urlsafe(24))
            spawn(self._host(helper), f"helper of job {job}")
        if part not in helper.parts:
            helper.parts[part] = replace(method, lease=self._lease(step))
            self._order(helper, part)

    def _lease(self, step: Step) -> PartLease:
        # The scheduler added this time for the start of the helper and the transfer of files.
        state = self._runtime.state
        limit_s = step.deadline_at - step.started_at - state.step_timeout_s
        return PartLease(step.stage, step.units, state.cores_of(step), max(1.0, limit_s), state.gpu_of(step))

    def stop(self, job: JobId, method: StopElsewhere) -> None:
        """Kill all parts of a step on helpers, at the client's wish."""
        for helper in self._helpers.get(job, {}).values():
            wanted = any(step == method.step for step, _ in helper.parts)
            if wanted and helper.link is not None and not helper.link.closed:
                order = RevokeStep(step=method.step, reason=method.reason)
                helper.link.order(order, ORDER_S, partial(self._untold, helper, helper.link))

    def step_ended(self, step: StepId) -> None:
        """Forget the ended parts of a step whose end the client has reported, and of steps that were lost."""
        running = self._runtime.state.steps
        if self._ended:
            self._ended = {of: ended for of, ended in self._ended.items() if of[0] != step and of[0] in running}

    # Their lives ------------------------------------------------------------------------------------------------------

    async def _host(self, helper: Helper) -> None:
        """Start a helper and watch it until it is lost."""
        while helper.parts and self._is_away(helper.host):  # noqa: ASYNC110 - no event of the scheduler tells of one host
            await asyncio.sleep(LOOK_S)
        if self._helpers.get(helper.job, {}).get(helper.host) is not helper:
            return helper.gone.set()  # its client is gone
        if not helper.parts:
            return self._lose(helper, "it is not needed any more")
        try:
            helper.process, helper.temporary = self._launch(helper)
        except OSError as error:
            return self._lose(helper, f"it cannot be started: {error}")
        log.info("a helper of job %d starts on %s", helper.job, helper.where)
        connects = asyncio.get_running_loop().call_later(STARTS_S, self._look, helper)
        spawn(self._limit_memory(helper, helper.process), f"limit memory of helper of job {helper.job}")
        how = await helper.process.wait()
        connects.cancel()
        self._lose(helper, helper.end_reason or how)

    async def _limit_memory(self, helper: Helper, process: ClientProcess) -> None:
        if reason := await self._memory.exceeded(process, helper.gone):
            log.warning("the helper of job %d on %s is killed: %s", helper.job, helper.where, reason)
            helper.end_reason = reason
            process.kill()

    def _is_away(self, host: HostName) -> bool:
        """Whether a host cannot be reached now and may come back."""
        known = self._runtime.state.hosts.get(host)
        return known is not None and bool(known.away) and not known.left

    def _look(self, helper: Helper) -> None:
        """Kill a helper that did not connect in time, unless its host is away."""
        if helper.gone.is_set() or (helper.link is not None and not helper.link.closed):
            return
        if self._is_away(helper.host):
            asyncio.get_running_loop().call_later(STARTS_S, self._look, helper)
        elif helper.process is not None:
            log.warning("the helper of job %d on %s is killed: it does not connect", helper.job, helper.where)
            helper.process.kill()

    def _lose(self, helper: Helper, how: str) -> None:
        """Drop a helper of which no process is left, and report its parts lost."""
        if helper.gone.is_set():
            return
        helper.gone.set()
        if self._helpers.get(helper.job, {}).get(helper.host) is helper:
            del self._helpers[helper.job][helper.host]
        if helper.temporary:
            shutil.rmtree(helper.temporary, ignore_errors=True)
        if helper.link is not None:
            helper.link.abort(how)
        useless = not helper.worked and not self._is_away(helper.host)
        for part in list(helper.parts):
            lost = f"the helper on {helper.where} is gone: {how}"[:4_000]
            self.over(helper, part, PartResult(lost=lost, useless=useless))
            useless = False

    def over(self, helper: Helper, part: Part, ended: PartResult) -> None:
        """A part of a step has ended on a helper: tell the client, once."""
        if helper.parts.pop(part, None) is not None:
            self._ended[part] = ended
            self._tell(helper.job, PartEnded(step=part[0], part=part[1], ended=ended))

    async def end(self, job: JobId) -> None:
        """End the helpers of a job whose client is gone. Waits for those on hosts that can be reached. The others end
        before their host gets any work."""
        helpers = self._helpers.pop(job, {})
        for helper in helpers.values():
            helper.parts.clear()
            if helper.process is not None:
                helper.process.kill()
        await asyncio.gather(*(self._end_of(helper) for helper in helpers.values()))
        self._files.clear(job)

    async def _end_of(self, helper: Helper) -> None:
        while not helper.gone.is_set() and helper.process is not None and not self._is_away(helper.host):
            try:
                async with asyncio.timeout(LOOK_S):
                    await helper.gone.wait()
            except TimeoutError:
                continue

    def jobs(self) -> tuple[JobId, ...]:
        """Jobs that have helpers."""
        return tuple(job for job, helpers in self._helpers.items() if helpers)

    @property
    def tokens(self) -> list[str]:
        """Tokens of all helpers."""
        return [helper.token for helpers in self._helpers.values() for helper in helpers.values()]

    # Their connections ------------------------------------------------------------------------------------------------

    def attach(self, link: Link, hello: Hello) -> bool:
        """Serve a peer if its token is a helper's; returns whether it is."""
        helpers = self._helpers.get(hello.job or 0, {}).values()
        helper = next((one for one in helpers if _same(one.token, hello.token)), None)
        if helper is None:
            return False
        if helper.link is not None:
            helper.link.abort("it has another connection")
        helper.link = link
        session = HelperSession(helper, link, self, self._parts)
        link.peer.serves, link.handler = CLIENT_METHODS, session.handle
        spawn(self._accompany(helper, link), f"connection of a helper of job {helper.job}")
        for part in list(helper.parts):
            self._order(helper, part)
        return True

    async def _accompany(self, helper: Helper, link: Link) -> None:
        listening = spawn(link.abort_when_silent(SILENCE_S), "listen to a helper")
        why = await link.wait_closed()
        listening.cancel()
        if helper.link is link and not helper.gone.is_set():
            log.info("the helper of job %d on %s is cut off: %s", helper.job, helper.host, why)
            asyncio.get_running_loop().call_later(STARTS_S, self._look, helper)

    def _order(self, helper: Helper, part: Part) -> None:
        """Send a part to its helper now, or when the helper connects."""
        if (link := helper.link) is not None and not link.closed:
            link.order(helper.parts[part], ORDER_S, partial(self._untold, helper, link))

    def _untold(self, helper: Helper, link: Link, error: AutoschedError) -> None:
        if isinstance(error, DaemonUnreachable):
            link.abort(f"it took no order: {error}")  # it reconnects, or is killed
        elif helper.process is not None:
            log.error("the helper of job %d is killed, since it refuses orders: %s", helper.job, error)
            helper.process.kill()


def _same(token: str, said: str) -> bool:
    return hmac.compare_digest(token.encode(), said.encode())


class HelperSession(ClientSession):
    """Session of one connection of a helper."""

    CALLER = Caller.HELPER

    def __init__(self, helper: Helper, link: Link, registry: HelperRegistry, parts: Parts) -> None:
        super().__init__(helper.job, lambda: helper.gone.is_set() or helper.link is not link, parts)
        self._helper, self._registry = helper, registry

    @property
    def _host(self) -> HostName:
        return self._helper.host

    @ANSWERS.to(PartEnded, Caller.HELPER)
    def _part_ended(self, method: PartEnded) -> None:
        self._helper.worked = True
        self._registry.over(self._helper, (method.step, method.part), method.ended)

    @ANSWERS.to(Return, Caller.HELPER)
    def _return(self, method: Return) -> None:
        """A helper holds no steps."""
