"""Answers to methods about lanes and devices: list, drain, return, free; pausing all of them; blocked candidates."""

from collections.abc import Callable

from autosched.core.events import Event, Paused, UnitDrained, UnitReturned
from autosched.core.state import Slot
from autosched.daemon.answers import ANSWERS
from autosched.daemon.observe.views import gone_boards, unit_views
from autosched.daemon.operations.user_session import UserSession
from autosched.daemon.runtime import Runtime
from autosched.errors import NotFound, Refused
from autosched.model import UnitName
from autosched.protocol import (
    BlockedList,
    Done,
    DrainUnit,
    ForgetBoard,
    ForgiveBlocked,
    FreeUnit,
    IdleList,
    ListBlocked,
    ListDevices,
    ListIdle,
    ListNews,
    NewsList,
    Pause,
    Resume,
    ReturnUnit,
    UnitList,
)  # fmt: skip


@ANSWERS.to(ListDevices)
def _devices(session: UserSession, _method: ListDevices) -> UnitList:
    runtime, health = session.runtime, session.services.monitor.health
    now = runtime.clock()
    return UnitList(unit_views(runtime.state, runtime.timeline, now, health), gone_boards(runtime.state, now))


@ANSWERS.to(ListNews)
def _news(session: UserSession, method: ListNews) -> NewsList:
    return NewsList(session.services.recent.of(slot_of(session.runtime, method.unit).unit.name, method.limit))


@ANSWERS.to(ListIdle)
def _idle(session: UserSession, method: ListIdle) -> IdleList:
    return IdleList(session.services.usage.idle(session.runtime.clock(), method.last_s))


@ANSWERS.to(ForgetBoard)
async def _forget_board(session: UserSession, method: ForgetBoard) -> Done:
    await session.services.boards.forget(method.unit)
    return Done()


@ANSWERS.to(DrainUnit)
async def _drain(session: UserSession, method: DrainUnit) -> Done:
    def drained() -> Event | None:
        unit, by = method.unit, session.who.name
        slot_of(session.runtime, unit)
        wanted = f"{method.reason} ({by})"
        before = session.runtime.state.drained.get(unit)
        same = method.deadline_s is None and before is not None and before.reason == wanted
        return None if same else UnitDrained(unit, wanted, by, method.deadline_s)

    return await _durably(session, drained)


@ANSWERS.to(ReturnUnit)
async def _return(session: UserSession, method: ReturnUnit) -> Done:
    def returned() -> Event:
        if method.unit not in session.runtime.state.drained:
            slot_of(session.runtime, method.unit)
            raise Refused(f"{method.unit} is not drained: it gets steps. See:  autosched devices")
        return UnitReturned(method.unit, session.who.name)

    return await _durably(session, returned)


@ANSWERS.to(FreeUnit)
async def _free(session: UserSession, method: FreeUnit) -> Done:
    """Free a unit. The client of its step counts as dead, and is killed if it runs on this machine."""

    def given_up() -> None:
        runtime, by = session.runtime, session.who.name
        holder = slot_of(runtime, method.unit).holder
        if holder is None:
            raise Refused(f"nothing holds {method.unit}: it is free. See:  autosched devices")
        why = f"{by} said that nothing of it runs on {method.unit} any more"
        session.services.clients.give_up(runtime.state.steps[holder].job, why)

    return await _durably(session, given_up)


@ANSWERS.to(Pause)
async def _pause(session: UserSession, method: Pause) -> Done:
    by = session.who.name
    return await _durably(session, lambda: Paused(by, f"{method.reason or 'paused'} ({by})"))


@ANSWERS.to(Resume)
async def _resume(session: UserSession, _method: Resume) -> Done:
    def resumed() -> Event:
        if not session.runtime.state.paused:
            raise Refused("nothing is paused: steps start. See:  autosched status")
        return Paused(session.who.name)

    return await _durably(session, resumed)


@ANSWERS.to(ListBlocked)
def _blocked(session: UserSession, method: ListBlocked) -> BlockedList:
    return BlockedList(session.services.attribution.listed(method.limit, method.before))


@ANSWERS.to(ForgiveBlocked)
async def _forgive(session: UserSession, method: ForgiveBlocked) -> Done:
    await session.services.attribution.forgive(method.number)
    return Done()


async def _durably(session: UserSession, change: Callable[[], Event | None]) -> Done:
    """Post the event; returns when it is durable."""
    await session.runtime.post(change)
    return Done()


def slot_of(runtime: Runtime, unit: UnitName) -> Slot:
    """The unit of this name. Raises NotFound."""
    slots = runtime.state.slots
    if unit not in slots:
        raise NotFound(f"there is no unit {unit!r}; there are: {', '.join(slots)}")
    return slots[unit]
