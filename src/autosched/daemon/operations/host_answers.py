"""Answers to methods about hosts: list, drain, return, forget."""

from collections.abc import Callable
from functools import partial

from autosched.core.events import Event, UnitDrained, UnitReturned
from autosched.daemon.answers import ANSWERS
from autosched.daemon.hosts.host_views import host_views
from autosched.daemon.operations.user_session import UserSession
from autosched.errors import Refused
from autosched.model import HostName, UnitName
from autosched.protocol import Done, DrainHost, ForgetHost, HostList, ListHosts, ReturnHost


@ANSWERS.to(ListHosts)
def _hosts(session: UserSession, method: ListHosts) -> HostList:
    runtime, registry = session.runtime, session.services.hosts
    if method.host:
        registry.known(method.host)
    views = host_views(runtime.state, registry, runtime.clock())
    return HostList(tuple(view for view in views if method.host in ("", view.host)))


@ANSWERS.to(DrainHost)
async def _drain(session: UserSession, method: DrainHost) -> Done:
    by = session.who.name
    reason = f"{method.reason} ({by})"

    def drained(unit: UnitName) -> Event | None:
        return None if unit in session.runtime.state.drained else UnitDrained(unit, reason, by)

    return await _each(session, method.host, drained)


@ANSWERS.to(ReturnHost)
async def _return(session: UserSession, method: ReturnHost) -> Done:
    drained, by = session.runtime.state.drained, session.who.name
    if not any(unit in drained for unit in session.services.hosts.known(method.host).units):
        raise Refused(f"no unit of host {method.host} is drained. See:  autosched hosts show {method.host}")
    return await _each(session, method.host, lambda unit: UnitReturned(unit, by) if unit in drained else None)


@ANSWERS.to(ForgetHost)
async def _forget(session: UserSession, method: ForgetHost) -> Done:
    await session.services.hosts.forget(method.host)
    return Done()


async def _each(session: UserSession, host: HostName, happened: Callable[[UnitName], Event | None]) -> Done:
    for unit in session.services.hosts.known(host).units:
        await session.runtime.post(partial(happened, unit))
    return Done()
