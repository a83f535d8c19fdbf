"""Watches the GPUs of the daemon's own machine: clocks, temperature, reasons of low clocks, memory errors, lost ones.

A process asks the driver once a second (`gpu_probe`). A GPU that is lost, or whose memory has errors, is quarantined.
"""

import asyncio
import logging

import msgspec

from autosched import formatting, gpus
from autosched.core.state import Slot
from autosched.daemon.devices.device_monitor import Health
from autosched.daemon.event_stream.daemon_events import DeviceUnreachable
from autosched.daemon.runtime import Runtime
from autosched.gpu_probe import WATCH_S, GpuState
from autosched.model import OWN_HOST, CudaDevice, Unit, UnitName
from autosched.process import isolated_python, program_runner
from autosched.protocol import DeviceCondition

log = logging.getLogger(__name__)

SLOWED = {
    0x04: "its power limit", 0x08: "its hardware", 0x20: "heat (the driver)", 0x40: "heat (the hardware)",
    0x80: "a power brake",
}  # fmt: skip
"""Reasons of a low clock, by NVML's bits (nvmlClocksEventReason)."""
SILENT_S = 15.0
"""Seconds without an answer after which the driver counts as silent."""
AGAIN_S = 10.0
"""Seconds between two attempts to watch."""
ENDS_S = 60.0
"""Seconds that the watch may take beyond its own limit."""


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
    if state.processes:
        words.append(f"used by {formatting.count(len(state.processes), 'program')}")
    return Health("; ".join(words), DeviceCondition.DRIFTING if slowed else DeviceCondition.STEADY)


class GpuWatch:
    """The last states of the GPUs."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._states: dict[str, GpuState] = {}
        self._heard_at: float | None = None
        """Time of the last answer by the scheduler's clock; None before the first one."""
        self._why_not = ""
        """Why the watch does not run."""
        self._broken: set[UnitName] = set()

    async def run(self) -> None:
        """Watch until cancelled; without GPUs, end at once."""
        while self._slots():
            try:
                ended = await program_runner.run(
                    isolated_python.command(gpus.PROBE, "watch"), timeout_s=WATCH_S + ENDS_S,
                    environment=isolated_python.environment(), on_line=self.hear,
                )  # fmt: skip
                self._why_not = f"its watch {ended.how}: {ended.last_words}" if ended.code else ""
            except (OSError, TimeoutError) as error:
                self._why_not = f"its watch failed: {error or 'it took too long'}"
            if self._why_not:
                log.warning("GPUs are not watched: %s", self._why_not)
                await asyncio.sleep(AGAIN_S)

    def hear(self, line: str) -> None:
        """Note a line of the watch, and quarantine GPUs that are lost or broken now."""
        try:
            states = msgspec.json.decode(line, type=tuple[GpuState, ...])
        except msgspec.MsgspecError as error:
            self._why_not = f"its watch cannot be read: {error}"
            return
        self._states = {state.uuid: state for state in states}
        self._heard_at, self._why_not = self._runtime.clock(), ""
        for name, slot in self._slots().items():
            broken = self.health(slot.unit).broken
            if not broken:
                self._broken.discard(name)
            elif name not in self._broken:
                self._broken.add(name)
                self._runtime.stream.publish(DeviceUnreachable(name, broken))

    def _slots(self) -> dict[UnitName, Slot]:
        """The GPUs of this machine."""
        slots = self._runtime.state.slots.items()
        return {name: slot for name, slot in slots if _is_own_gpu(slot.unit)}

    def health(self, unit: Unit) -> Health:
        """The health of a GPU by its last state."""
        if not _is_own_gpu(unit):
            return Health("not watched: on another machine", DeviceCondition.NOT_WATCHED)
        if self._heard_at is None:
            return Health(self._why_not or "not asked yet", DeviceCondition.NOT_WATCHED)
        if (silent_s := self._runtime.clock() - self._heard_at) > SILENT_S:
            words = f"the driver has not answered for {formatting.duration(silent_s)}"
            return Health("; ".join(filter(None, (words, self._why_not))), DeviceCondition.NOT_WATCHED)
        assert isinstance(unit.accelerator, CudaDevice)
        uuid = unit.accelerator.uuid
        return judged(self._states.get(uuid) or GpuState(uuid, "the driver does not list it any more"))


def _is_own_gpu(unit: Unit) -> bool:
    return isinstance(unit.accelerator, CudaDevice) and unit.host == OWN_HOST
