"""States of GPUs: judged, told in words, and followed by a quarantine."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from autosched.daemon.devices.gpu_watch import SILENT_S, GpuWatch, judged
from autosched.daemon.event_stream.daemon_events import DeviceUnreachable
from autosched.gpu_probe import GpuState
from autosched.gpu_states import GpuStates
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
        (changed(processes=(7, 8)), f"{WARM}; {CLOCK}; open in 2 other programs", STEADY),
        (
            changed(processes=(7, 8), busy=(8,)),
            f"{WARM}; {CLOCK}; 1 other program computed there in the last second", STEADY,
        ),
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
        self.tagged: list[tuple[str, float, str]] = []
        self.watch.tags = lambda *words: self.tagged.append(words)

    def hear(self, *states: GpuState, host: str = "") -> None:
        self.watch.hear(host, states)

    def words(self, unit: str) -> str:
        return self.watch.health(UNITS[unit]).words


def test_a_gpu_is_told_by_its_last_state() -> None:
    bench = Bench()
    assert bench.words("gpu0") == "not asked yet"
    assert bench.words("gpu@lab2") == "not asked yet"
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


def test_gpus_of_another_machine_are_told_by_its_agent() -> None:
    bench = Bench()
    far = msgspec.structs.replace(WELL, uuid=UUIDS[2])
    bench.hear(WELL, msgspec.structs.replace(WELL, uuid=UUIDS[1]))
    bench.hear(far, host="lab2")
    assert bench.words("gpu@lab2").startswith("41 °C")
    bench.hear(msgspec.structs.replace(far, trouble="GPU is lost"), host="lab2")
    assert bench.published == [DeviceUnreachable("gpu@lab2", "GPU is lost")]
    assert bench.words("gpu0").startswith("41 °C"), "the other machine's GPU is as it was"


HOT = "the GPU was slowed down by heat (the hardware) to 900 of 1,980 MHz"


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (changed(reasons=0x40, clock_mhz=900), HOT),
        (changed(busy=(8, 9)), "other programs (process 8, 9) computed on the GPU"),
    ],
)
def test_records_are_tagged_from_the_state_before_a_disturbance_to_the_one_after_it(bad: GpuState, reason: str) -> None:
    bench = Bench()
    for now, state in ((1.0, WELL), (2.0, bad), (3.0, bad), (4.0, WELL), (5.0, WELL)):
        bench.now = now
        bench.hear(state)
    assert bench.tagged == [("gpu0", 1.0, reason), ("gpu0", 2.0, reason), ("gpu0", 3.0, reason)]


@pytest.mark.parametrize("state", [changed(reasons=0x04), changed(processes=(7,)), changed(reasons=0x100)])
def test_what_is_the_same_each_time_disturbs_nothing(state: GpuState) -> None:
    bench = Bench()
    bench.hear(WELL)
    bench.hear(state)
    assert not bench.tagged


@pytest.mark.parametrize("line", ["", "Traceback", '{"uuid": 3}', '[{"uuid": 3}]'])
def test_a_line_that_cannot_be_read_is_told(line: str) -> None:
    heard: list[Sequence[GpuState]] = []
    states = GpuStates(heard.append)
    states._hear(line)
    assert "its watch cannot be read" in states.why_not
    states._hear(msgspec.json.encode([WELL]).decode())
    assert (states.why_not, heard) == ("", [(WELL,)])
