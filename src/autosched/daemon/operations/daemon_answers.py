"""Answers to methods about the daemon: identity, policy, audit, diagnostics, settings, data, shutdown."""

import asyncio
import os
from collections import deque

from autosched import policy_registry
from autosched.core.events import PolicyChosen
from autosched.daemon.answers import ANSWERS
from autosched.daemon.observe import diagnostics
from autosched.daemon.observe.loop_monitor import loop_tasks
from autosched.daemon.observe.views import calibration
from autosched.daemon.operations.graceful_shutdown import wind_down
from autosched.daemon.operations.job_answers import ANSWER_BYTES_MAX
from autosched.daemon.operations.user_session import UserSession
from autosched.daemon.runtime import spawn
from autosched.errors import Refused
from autosched.model import encode
from autosched.process.process_tree import resident_bytes
from autosched.protocol import (
    AuditEntry,
    AuditList,
    ChoosePolicy,
    ConfirmReload,
    DaemonInfo,
    Done,
    Figures,
    GetFigures,
    GetPageLink,
    GetPolicy,
    Info,
    ListAudit,
    ListLoopTasks,
    ListQueues,
    ListStalls,
    LoopTaskList,
    PageLink,
    PolicyView,
    Prune,
    Pruned,
    QueueList,
    Reload,
    Reloaded,
    Shutdown,
    StallList,
)  # fmt: skip
from autosched.version import __version__


@ANSWERS.to(Info)
def _info(session: UserSession, _method: Info) -> DaemonInfo:
    services, state = session.services, session.runtime.state
    return DaemonInfo(
        version=__version__,
        pid=os.getpid(),
        uptime_s=session.runtime.clock() - session.runtime.timeline.began_at,
        policy=session.runtime.scheduler.policy.name,
        on_demand=services.on_demand,
        state_dir=str(services.config.state_dir),
        address=services.addresses[0] if services.addresses else "",
        jobs_active=len(state.active),
        jobs_total=len(state.jobs),
        steps_started=state.last_step,
        rss_bytes=resident_bytes("self"),
        warnings=services.warnings_now,
        goal=state.goal.value,
        calibration=calibration(state),
        paused=state.paused,
        page=services.page,
    )


@ANSWERS.to(GetPageLink)
def _get_page_link(session: UserSession, method: GetPageLink) -> PageLink:
    services = session.services
    if not services.page:
        return PageLink("")
    path = f"jobs/{method.job}" if method.job else ""
    return PageLink(f"{services.page}{path}#sign-in={services.page_links.make(session.who)}")


@ANSWERS.to(GetPolicy)
def _get_policy(session: UserSession, _method: GetPolicy) -> PolicyView:
    return _policy(session)


def _policy(session: UserSession) -> PolicyView:
    state = session.runtime.state
    return PolicyView(
        policy=session.runtime.scheduler.policy.name,
        goal=state.goal.value,
        rule=state.rule,
        installed=policy_registry.installed(),
        configured=policy_registry.proper_name(session.services.config.scheduler.policy),
        replaced=session.runtime.replaced,
        calibration=calibration(state),
    )


@ANSWERS.to(ChoosePolicy)
async def _choose(session: UserSession, method: ChoosePolicy) -> PolicyView:
    now = session.runtime.scheduler.policy.name
    name, goal = policy_registry.proper_name(method.policy or now), method.goal or session.runtime.state.goal
    try:
        policy_registry.check_allowed(policy_registry.load(name), session.services.config.scheduler.allow_interference)
    except policy_registry.PolicyBroken as error:
        raise Refused(f"{error}; {now} goes on deciding") from None
    await session.runtime.post(lambda: PolicyChosen(name, goal, session.who.name))
    return _policy(session)


@ANSWERS.to(ListAudit)
async def _audit(session: UserSession, method: ListAudit) -> AuditList:
    """The latest entries that fit into an answer."""
    entries, size = deque[AuditEntry](), 0
    for entry in reversed(await session.services.audit.latest(method.limit, method.before)):
        size += len(encode(entry))
        if size > ANSWER_BYTES_MAX:
            break
        entries.appendleft(entry)
    return AuditList(tuple(entries))


@ANSWERS.to(GetFigures)
def _figures(session: UserSession, method: GetFigures) -> Figures:
    return diagnostics.figures(method.section, session.runtime, session.services.pulse)


@ANSWERS.to(ListQueues)
def _queues(session: UserSession, method: ListQueues) -> QueueList:
    return diagnostics.queues(session.runtime, method.limit)


@ANSWERS.to(ListStalls)
def _stalls(session: UserSession, _method: ListStalls) -> StallList:
    return StallList(tuple(session.services.pulse.stalls))


@ANSWERS.to(ListLoopTasks)
def _loop_tasks(_session: UserSession, _method: ListLoopTasks) -> LoopTaskList:
    return LoopTaskList(loop_tasks())


@ANSWERS.to(Prune)
async def _prune(session: UserSession, method: Prune) -> Pruned:
    return await session.services.retention.prune(method)


@ANSWERS.to(Reload)
async def _reload(session: UserSession, method: Reload) -> Reloaded:
    return await session.services.settings.reload(method)


@ANSWERS.to(ConfirmReload)
def _confirm(session: UserSession, _method: ConfirmReload) -> Done:
    return session.services.settings.confirm()


@ANSWERS.to(Shutdown)
def _shutdown(session: UserSession, method: Shutdown) -> Done:
    stop, by = session.services.stop, session.who.name
    if method.drain_s:
        spawn(wind_down(session.runtime, method.drain_s, by, stop), "the end")
    else:
        asyncio.get_running_loop().call_soon(stop, f"{by} asked for it")
    return Done()
