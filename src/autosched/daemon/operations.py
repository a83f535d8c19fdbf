"""What operators do to units: drain one, give it steps again, say that nothing runs on it."""

from autosched.core.events import Event, UnitDrained, UnitReturned
from autosched.core.state import Slot
from autosched.daemon.clients import Clients
from autosched.daemon.runtime import Runtime
from autosched.errors import NotFound, Refused
from autosched.model import UnitName
from autosched.protocol import Done, DrainUnit, FreeUnit, ReturnUnit


async def operate(method: DrainUnit | ReturnUnit | FreeUnit, by: str, runtime: Runtime, clients: Clients) -> Done:
    """Do it; returns when it is durable. Raises NotFound or Refused."""
    unit = method.unit

    def changed() -> Event | None:
        reason = runtime.state.drained.get(unit)
        match method:
            case DrainUnit():
                _slot(runtime, unit)
                wanted = f"{method.reason} ({by})"
                return UnitDrained(unit, wanted, by) if reason != wanted else None
            case ReturnUnit() if reason is None:
                _slot(runtime, unit)
                raise Refused(f"{unit} is not drained: it gets steps")
            case ReturnUnit():
                return UnitReturned(unit, by)
            case FreeUnit():
                _give_up(runtime, clients, unit, by)
        return None

    await runtime.post(changed)
    return Done()


def _slot(runtime: Runtime, unit: UnitName) -> Slot:
    slots = runtime.state.slots
    if unit not in slots:
        raise NotFound(f"there is no unit {unit!r}; there are: {', '.join(slots)}")
    return slots[unit]


def _give_up(runtime: Runtime, clients: Clients, unit: UnitName, by: str) -> None:
    """The client of whoever holds the unit is as good as dead; one on this machine is killed, to be sure."""
    holder = _slot(runtime, unit).holder
    if holder is None:
        raise Refused(f"nothing holds {unit}")
    clients.give_up(runtime.state.steps[holder].job, f"{by} said that nothing of it runs on {unit} any more")
