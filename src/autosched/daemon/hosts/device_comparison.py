"""Decides whether devices of several hosts are comparable, by their processor and by the sentinel benchmark.

The sentinel runs on a device that is idle: an agent runs it before it lends its devices, and the daemon runs it on one
of its own devices when the first host with such devices joins.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence

from msgspec import Struct

from autosched.core.events import Event, UnitDrained, UnitReturned
from autosched.daemon.runtime import BY, Runtime
from autosched.device_probe import Pace, Unwell, treat
from autosched.errors import Busy
from autosched.model import DEVICE_POOL, OWN_HOST, HostName, Pool, Unit, UnitName, at_host, device_kind
from autosched.protocol import ProbedUnit
from autosched_runtime.cpu_model import cpu_model

log = logging.getLogger(__name__)

DIFFERS = 0.1
"""Maximum share by which the paces of comparable devices differ. That of an idle virtual machine changes by some per
cent from day to day."""
FREE_S = 20.0
"""Maximum seconds to wait for a device of the daemon's own host."""
LOOK_S = 0.1
"""Seconds between two checks of whether the device is free."""


class Reference(Struct, frozen=True):
    """Model and pace of the devices of a kind that other hosts lend."""

    model: str = ""
    """Model of the processor; empty: not known, or there are none."""
    pace: Pace | None = None
    """None: the reference kernel does not run there."""


def difference(one: Pace | None, other: Pace | None) -> float:
    """Largest share by which the paces of two devices differ; 0 where one is unknown."""
    if one is None or other is None:
        return 0.0
    ratios = (one.core_s / other.core_s, one.memory_s / other.memory_s)
    return max(max(ratio, 1 / ratio) for ratio in ratios) - 1


def pace_of(pool: Pool, paces: Mapping[UnitName, ProbedUnit]) -> Pace | None:
    """Pace of the slowest device of a pool, from its agent's measurements."""
    told = [paces[unit.name] for unit in pool.units if unit.name in paces]
    known = [(one.core_s, one.memory_s) for one in told if one.core_s is not None and one.memory_s is not None]
    if not known:
        return None
    return Pace(max(core_s for core_s, _ in known), max(memory_s for _, memory_s in known))


class DeviceComparison:
    """Paces of the devices of all hosts that were measured since the daemon started."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._paces: dict[tuple[HostName, str], Pace | None] = {}

    def remember(self, host: HostName, pools: Sequence[Pool], paces: Mapping[UnitName, ProbedUnit]) -> None:
        """Store the paces of a host's devices. `pools` have names of the daemon, `paces` names of the host."""
        own = {at_host(unit, host): pace for unit, pace in paces.items()}
        for pool in pools:
            if kind := device_kind(pool.name):
                self._paces[host, kind] = pace_of(pool, own)

    async def reference(self, kind: str, host: HostName, *, measured: bool) -> Reference:
        """The devices of a kind on other hosts, the daemon's own first. `measured`: the new host's devices have a pace.

        Raises Busy while the daemon's own devices cannot be measured.
        """
        state = self._runtime.state
        if DEVICE_POOL + kind in state.queues:
            return Reference(cpu_model(), await self._own_pace(kind, host) if measured else None)
        for name, other in state.hosts.items():
            for pool in other.pools if name != host else ():
                if pool.name == at_host(DEVICE_POOL + kind, name):
                    return Reference(pool.units[0].model, self._paces.get((name, kind)))
        return Reference()

    async def _own_pace(self, kind: str, host: HostName) -> Pace | None:
        key = OWN_HOST, kind
        if key not in self._paces:
            state = self._runtime.state
            units = [unit for unit in state.queues[DEVICE_POOL + kind].pool.units if unit.cores]
            ready = [unit for unit in units if unit.name not in state.drained]
            free = [unit for unit in ready if state.slots[unit.name].holder is None]
            if not ready:
                return None  # no device that gets steps has cores
            self._paces[key] = await self._measured((free or ready)[0], host)
        return self._paces[key]

    async def _measured(self, unit: Unit, host: HostName) -> Pace | None:
        """Measure a device of the daemon's own host. It gets no steps meanwhile."""
        slots, drained = self._runtime.state.slots, self._runtime.state.drained

        def begins() -> Event | None:
            return None if unit.name in drained else UnitDrained(unit.name, f"it is compared with those of {host}", BY)

        def ends() -> Event | None:
            ours = unit.name in drained and drained[unit.name].by == BY and drained[unit.name].quarantine is None
            return UnitReturned(unit.name, BY) if ours else None

        await self._runtime.post(begins)
        try:
            async with asyncio.timeout(FREE_S):
                while slots[unit.name].holder is not None:  # noqa: ASYNC110 - no event tells of one unit
                    await asyncio.sleep(LOOK_S)
            return await treat(unit.name, unit.cores, (), 0.0)
        except TimeoutError:
            raise Busy(
                f"the devices here are busy and cannot be compared with those of {host} yet; it is tried again"
            ) from None
        except Unwell as error:
            log.warning("%s cannot be compared with the devices of %s: %s", unit.name, host, error)
            return None
        finally:
            await self._runtime.post(ends)
