"""Watches GPUs: clocks, temperature, reasons of low clocks, other programs, memory errors, lost ones.

The states of those of this machine come once a second (`gpu_states`), those of agents with their reports. A GPU that is
lost, or whose memory has errors, is quarantined. Records that heat or another program may have disturbed are tagged.
"""

from collections.abc import Callable, Sequence

from autosched import formatting
from autosched.core.state import Slot
from autosched.daemon.devices.device_monitor import Health
from autosched.daemon.event_stream.daemon_events import DeviceUnreachable
from autosched.daemon.runtime import Runtime
from autosched.gpu_probe import GpuState
from autosched.gpu_states import GpuStates
from autosched.model import OWN_HOST, CudaDevice, HostName, Unit, UnitName
from autosched.protocol import DeviceCondition

SLOWED = {
    0x04: "its power limit", 0x08: "its hardware", 0x20: "heat (the driver)", 0x40: "heat (the hardware)",
    0x80: "a power brake",
}  # fmt: skip
"""Reasons of a low clock, by NVML's bits (nvmlClocksEventReason)."""
STEADY = 0x04
"""The reason that disturbs nothing: a kernel that needs much power has that limit each time."""
SILENT_S = 15.0
"""Seconds without an answer after which the driver counts as silent."""


def judged(state: GpuState) -> Health:
    """The health of a GPU in a state, the worst first. Pure."""
    if state.trouble:
        return Health(f"it does not answer: {state.trouble}", DeviceCondition.DRIFTING, state.trouble)
    if state.ecc_errors:
        errors = f"{formatting.count(state.ecc_errors, 'error')} of its memory since the boot"
        return Health(f"{errors}. Reset it: nvidia-smi -r", DeviceCondition.DRIFTING, errors)
    slowed = [what for bit, what in SLOWED.items() if state.reasons & bit]
    clock = f"{state.clock_mhz:,} of {state.clock_max_mhz:,} MHz"
    words = [f"slowed down by {' and '.join(slowed)} to {clock}"] if slowed else []
    if state.temperature_c:
        limit = f" (slows down at {state.slowdown_c})" if state.slowdown_c else ""
        words.append(f"{state.temperature_c} °C{limit}")
    if not slowed and state.clock_mhz:
        words.append(clock)
    if state.busy:
        words.append(f"{formatting.count(len(state.busy), 'other program')} computed there in the last second")
    elif state.processes:
        words.append(f"open in {formatting.count(len(state.processes), 'other program')}")
    return Health("; ".join(words), DeviceCondition.DRIFTING if slowed else DeviceCondition.STEADY)


def disturbance(state: GpuState) -> str:
    """Why measurements on a GPU in a state do not count, in words; empty if they do. Pure."""
    if state.busy:
        return f"other programs (process {', '.join(map(str, state.busy[:5]))}) computed on the GPU"
    slowed = [what for bit, what in SLOWED.items() if state.reasons & bit and bit != STEADY]
    if not slowed:
        return ""
    return f"the GPU was slowed down by {' and '.join(slowed)} to {state.clock_mhz:,} of {state.clock_max_mhz:,} MHz"


Disturbed = Callable[[UnitName, float, str], None]
"""Tags the records of a device since a time of the scheduler's clock, with the reason."""


class GpuWatch:
    """The last states of the GPUs."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._states: dict[str, GpuState] = {}
        self._heard_at: dict[HostName, float] = {}
        """Time of the last answer of each machine by the scheduler's clock."""
        self._own = GpuStates(lambda states: self.hear(OWN_HOST, states))
        self._broken: set[UnitName] = set()
        self._disturbances: dict[UnitName, str] = {}
        """Why the last state of a GPU disturbed measurements."""
        self.tags: Disturbed = lambda _unit, _since, _reason: None

    async def run(self) -> None:
        """Watch this machine's GPUs until cancelled; without any, end at once."""
        if self._slots(OWN_HOST):
            await self._own.run()

    def hear(self, host: HostName, states: Sequence[GpuState]) -> None:
        """Note the states of a machine's GPUs: quarantine those that are lost or broken now, and tag records that were
        disturbed since the states before."""
        now = self._runtime.clock()
        since = self._heard_at.get(host, now - SILENT_S)
        self._states |= {state.uuid: state for state in states}
        there = {state.uuid for state in states}
        self._heard_at[host] = now
        for name, slot in self._slots(host).items():
            assert isinstance(slot.unit.accelerator, CudaDevice)
            if (uuid := slot.unit.accelerator.uuid) not in there:
                self._states.pop(uuid, None)
            broken = self.health(slot.unit).broken
            if not broken:
                self._broken.discard(name)
            elif name not in self._broken:
                self._broken.add(name)
                self._runtime.stream.publish(DeviceUnreachable(name, broken))
            self._tag(name, uuid, since)

    def _tag(self, unit: UnitName, uuid: str, since: float) -> None:
        """Tag the records since the states before if a GPU is disturbed now, or was then."""
        state = self._states.get(uuid)
        before, now = self._disturbances.pop(unit, ""), disturbance(state) if state is not None else ""
        if now:
            self._disturbances[unit] = now
        if now or before:
            self.tags(unit, since, now or before)

    def _slots(self, host: HostName) -> dict[UnitName, Slot]:
        """The GPUs of a machine."""
        slots = self._runtime.state.slots.items()
        return {
            name: slot
            for name, slot in slots
            if isinstance(slot.unit.accelerator, CudaDevice) and slot.unit.host == host
        }

    def health(self, unit: Unit) -> Health:
        """The health of a GPU by its last state."""
        why_not = self._own.why_not if unit.host == OWN_HOST else ""
        if (heard_at := self._heard_at.get(unit.host)) is None:
            return Health(why_not or "not asked yet", DeviceCondition.NOT_WATCHED)
        if (silent_s := self._runtime.clock() - heard_at) > SILENT_S:
            words = f"the driver has not answered for {formatting.duration(silent_s)}"
            return Health("; ".join(filter(None, (words, why_not))), DeviceCondition.NOT_WATCHED)
        assert isinstance(unit.accelerator, CudaDevice)
        uuid = unit.accelerator.uuid
        return judged(self._states.get(uuid) or GpuState(uuid, "the driver does not list it any more"))
