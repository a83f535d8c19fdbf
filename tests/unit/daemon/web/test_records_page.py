"""The records page: latency over time, by device."""

from msgspec.structs import replace

from autosched.daemon.web.records_page import falling
from autosched.recordstore.rows import Schedule, Standing
from samples_of_store import CONV, HERE, JOB, LAB


def schedule(measured_at: float, best_s: float | None, device: str = "EPYC") -> Schedule:
    where = replace(HERE, device=device)
    return Schedule(CONV.hash, where, b"", best_s, Standing.SEARCHED, (), "", "", measured_at, JOB, LAB)


def test_each_device_has_a_curve_that_falls() -> None:
    history = [schedule(4.0, 3e-3), schedule(1.0, 9e-3), schedule(2.0, None), schedule(3.0, 2e-3), schedule(5.0, 1e-3)]
    others = [schedule(2.0, 5e-3, "Ryzen"), schedule(0.0, 1e-9), schedule(6.0, 4e-3, "")]
    assert falling([*history, *others]) == {
        "EPYC": [(1.0, 9e-3), (3.0, 2e-3), (5.0, 1e-3)],
        "Ryzen": [(2.0, 5e-3)],
        "device not known": [(6.0, 4e-3)],
    }
    assert falling([]) == {}
