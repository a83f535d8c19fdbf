"""Operations of users and operators: change priorities, hold jobs, drain units, pause everything."""

from autosched.core.events import Event, JobAltered, Paused, UnitDrained, UnitReturned
from autosched.core.state import Job, Slot
from autosched.daemon.clients.supervisor import ClientSupervisor
from autosched.daemon.runtime import Runtime
from autosched.errors import NotFound, Refused
from autosched.model import UnitName
from autosched.protocol import (
    Done,
    DrainUnit,
    FreeUnit,
    HoldJob,
    Pause,
    PreviousSettings,
    ReleaseJob,
    Resume,
    ReturnUnit,
    SetJob,
)


async def operate(
    method: DrainUnit | ReturnUnit | FreeUnit | Pause | Resume, by: str, runtime: Runtime, clients: ClientSupervisor
) -> Done:
    """Do it; returns when it is durable. Raises NotFound or Refused."""

    def changed() -> Event | None:
        match method:
            case DrainUnit(unit=unit, reason=reason, deadline_s=deadline_s):
                slot_of(runtime, unit)
                wanted = f"{reason} ({by})"
                before = runtime.state.drained.get(unit)
                same = deadline_s is None and before is not None and before.reason == wanted
                return None if same else UnitDrained(unit, wanted, by, deadline_s)
            case ReturnUnit(unit=unit):
                if unit not in runtime.state.drained:
                    slot_of(runtime, unit)
                    raise Refused(f"{unit} is not drained: it gets steps. See:  autosched devices")
                return UnitReturned(unit, by)
            case FreeUnit(unit=unit):
                _give_up(runtime, clients, unit, by)
            case Pause(reason=reason):
                return Paused(by, f"{reason or 'paused'} ({by})")
            case Resume():
                if not runtime.state.paused:
                    raise Refused("nothing is paused: steps start. See:  autosched status")
                return Paused(by)
        return None

    await runtime.post(changed)
    return Done()


async def alter(method: SetJob | HoldJob | ReleaseJob, by: str, job: Job, runtime: Runtime) -> PreviousSettings | Done:
    """Do it; returns when it is durable. The answer to SetJob is what was wanted before. Raises Refused."""
    before: PreviousSettings | None = None

    def changed() -> Event | None:
        nonlocal before
        spec, held = job.spec, job.held
        if job.state.ended:
            raise Refused(f"job {job.id} has ended already: {job.state.value}. See:  autosched job {job.id}")
        priority, deadline_s = spec.priority, spec.deadline_s
        before = PreviousSettings(priority, None if deadline_s is None else job.submitted_at + deadline_s, held)
        match method:
            case HoldJob(reason=reason):
                held = f"{reason or 'held'} ({by})"
            case ReleaseJob():
                if not held:
                    raise Refused(f"job {job.id} is not held. Why it waits:  autosched explain {job.id}")
                held = ""
            case SetJob():
                if method.deadline_s is not None:
                    deadline_s = runtime.clock() - job.submitted_at + method.deadline_s if method.deadline_s else None
                priority = priority if method.priority is None else method.priority
        same = (priority, deadline_s, held) == (spec.priority, spec.deadline_s, job.held)
        return None if same else JobAltered(job.id, by, priority, deadline_s, held)

    await runtime.post(changed)
    assert before is not None
    return before if isinstance(method, SetJob) else Done()


def slot_of(runtime: Runtime, unit: UnitName) -> Slot:
    """The unit of this name. Raises NotFound."""
    slots = runtime.state.slots
    if unit not in slots:
        raise NotFound(f"there is no unit {unit!r}; there are: {', '.join(slots)}")
    return slots[unit]


def _give_up(runtime: Runtime, clients: ClientSupervisor, unit: UnitName, by: str) -> None:
    """The client of whoever holds the unit is as good as dead; one on this machine is killed, to be sure."""
    holder = slot_of(runtime, unit).holder
    if holder is None:
        raise Refused(f"nothing holds {unit}: it is free. See:  autosched devices")
    clients.give_up(runtime.state.steps[holder].job, f"{by} said that nothing of it runs on {unit} any more")
