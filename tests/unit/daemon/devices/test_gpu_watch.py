"""States of GPUs: judged, told in words, and followed by a quarantine."""

from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from autosched.daemon.devices.gpu_watch import SILENT_S, GpuWatch, judged
from autosched.daemon.event_stream.daemon_events import DeviceUnreachable
from autosched.gpu_probe import GpuState
from autosched.model import CudaDevice, Unit
from autosched.protocol import DeviceCondition

UUIDS = tuple(f"GPU-fa4e{number:04d}-0000-0000-0000-000000000000" for number in range(3))
UNITS = {
    "gpu0": Unit("gpu0", accelerator=CudaDevice(UUIDS[0], 90)),
    "gpu1": Unit("gpu1", accelerator=CudaDevice(UUIDS[1], 90)),
    "gpu@lab2": Unit("gpu@lab2", accelerator=CudaDevice(UUIDS[2], 90), host="lab2"),
    "cpu0": Unit("cpu0", (1,)),
}
WELL = GpuState(UUIDS[0], temperature_c=41, slowdown_c=90, clock_mhz=1980, clock_max_mhz=1980, reasons=1)


def changed(**words: Any) -> GpuState:
    return msgspec.structs.replace(WELL, **words)


STEADY, DRIFTING = DeviceCondition.STEADY, DeviceCondition.DRIFTING
WARM, CLOCK = "41 °C (slows down at 90)", "1,980 of 1,980 MHz"


@pytest.mark.parametrize(
    ("state", "words", "condition"),
    [
        (WELL, f"{WARM}; {CLOCK}", STEADY),
        (changed(processes=(7, 8)), f"{WARM}; {CLOCK}; used by 2 programs", STEADY),
        (
            changed(reasons=0x1 | 0x40, clock_mhz=900),
            f"slowed down by heat (the hardware) to 900 of 1,980 MHz; {WARM}", DRIFTING,
        ),
        (changed(reasons=0x84), f"slowed down by its power limit and a power brake to {CLOCK}; {WARM}", DRIFTING),
        (changed(reasons=0x100), f"{WARM}; {CLOCK}", STEADY),
        (GpuState(UUIDS[0]), "", STEADY),
        (changed(ecc_errors=2), "2 errors of its memory since the boot. Reset it: nvidia-smi -r", DRIFTING),
        (GpuState(UUIDS[0], "GPU is lost"), "it does not answer: GPU is lost", DRIFTING),
    ],
)  # fmt: skip
def test_a_state_in_words(state: GpuState, words: str, condition: DeviceCondition) -> None:
    health = judged(state)
    assert (health.words, health.condition) == (words, condition)
    assert bool(health.broken) == bool(state.trouble or state.ecc_errors)


class Bench:
    """A watch with a clock of its own."""

    def __init__(self) -> None:
        self.now, self.published = 0.0, list[DeviceUnreachable]()
        runtime = SimpleNamespace(
            clock=lambda: self.now, stream=SimpleNamespace(publish=self.published.append),
            state=SimpleNamespace(slots={name: SimpleNamespace(unit=unit) for name, unit in UNITS.items()}),
        )  # fmt: skip
        self.watch = GpuWatch(cast(Any, runtime))

    def hear(self, *states: GpuState) -> None:
        self.watch.hear(msgspec.json.encode(states).decode())

    def words(self, unit: str) -> str:
        return self.watch.health(UNITS[unit]).words


def test_a_gpu_is_told_by_its_last_state() -> None:
    bench = Bench()
    assert bench.words("gpu0") == "not asked yet"
    assert bench.words("gpu@lab2") == "not watched: on another machine"
    bench.hear(WELL, msgspec.structs.replace(WELL, uuid=UUIDS[1], temperature_c=50))
    assert bench.words("gpu1").startswith("50 °C")
    bench.hear(WELL, msgspec.structs.replace(WELL, uuid=UUIDS[1], temperature_c=60))
    assert bench.words("gpu1").startswith("60 °C")
    bench.now = SILENT_S + 1
    assert bench.words("gpu1") == "the driver has not answered for 16s"
    assert bench.watch.health(UNITS["gpu1"]).condition is DeviceCondition.NOT_WATCHED
    assert not bench.published


def test_a_gpu_is_said_to_be_lost_once() -> None:
    bench = Bench()
    other = msgspec.structs.replace(WELL, uuid=UUIDS[1])
    bench.hear(WELL, other)
    for _ in range(3):
        bench.hear(GpuState(UUIDS[0], "GPU is lost"), other)
    assert bench.published == [DeviceUnreachable("gpu0", "GPU is lost")]
    bench.hear(WELL, other)
    bench.hear(WELL)
    assert bench.published[1:] == [DeviceUnreachable("gpu1", "the driver does not list it any more")]
    bench.hear(changed(ecc_errors=1), other)
    assert bench.published[2:] == [DeviceUnreachable("gpu0", "1 error of its memory since the boot")]


@pytest.mark.parametrize("line", ["", "Traceback", '{"uuid": 3}', '[{"uuid": 3}]'])
def test_a_line_that_cannot_be_read_is_told(line: str) -> None:
    bench = Bench()
    bench.watch.hear(line)
    assert "its watch cannot be read" in bench.words("gpu0")
    bench.hear(WELL)
    assert bench.words("gpu0").startswith("41 °C")
