"""The sentinel, and the load of other programs on a device's cores."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from autosched.client.interference import TICK_S, ForeignLoad, InterferenceMonitor
from autosched.model import FOREIGN_MIN_S, DeviceNote
from autosched.sentinel import COPIED_BYTES, SentinelTimes, run_sentinel

CORE = max(os.sched_getaffinity(0))
SPIN = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nprint(flush=True)\nwhile True: pass"


def test_the_sentinel_is_short_and_keeps_the_affinity_of_the_thread() -> None:
    home = os.sched_getaffinity(0)
    found = run_sentinel((CORE,))
    assert 1e-6 < found.core_s < 0.1
    assert COPIED_BYTES / 200e9 < found.memory_s < 1.0
    assert os.sched_getaffinity(0) == home


class Stat:
    """A scripted /proc/stat of two cores."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "stat"
        self.tell([0] * 8, [0] * 8)

    def tell(self, *cores: list[int]) -> None:
        lines = ["cpu  1 1 1 1 1 1 1 1 0 0"]
        lines += [f"cpu{i} {' '.join(map(str, ticks))} 0 0" for i, ticks in enumerate(cores)]
        self.path.write_text("\n".join([*lines, "intr 5", ""]))


def test_busy_time_of_the_devices_cores_alone_counts(tmp_path: Path) -> None:
    stat = Stat(tmp_path)
    load = ForeignLoad((1,), stat.path)
    load._began_at = time.monotonic() - 1.0
    stat.tell([500, 0, 0, 0, 0, 0, 0, 0], [10, 1, 2, 900, 50, 3, 4, 5])  # idle and waiting for disks is not busy
    foreign_s, watched_s = load.seen()
    assert foreign_s is not None
    assert 25 * TICK_S - 0.2 <= foreign_s <= 25 * TICK_S  # minus the time of this process, which may run there
    assert 1.0 <= watched_s < 60.0


def test_a_system_without_processor_times_reports_no_load(tmp_path: Path) -> None:
    stat = Stat(tmp_path)
    load = ForeignLoad((1,), stat.path)
    load._began_at -= 1.0
    assert load.seen()[0] is None
    load = ForeignLoad((1,), tmp_path / "none")
    load._began_at -= 1.0
    assert load.seen()[0] is None


@pytest.fixture
def spinner() -> Iterator[subprocess.Popen[bytes]]:
    """A busy child process on the core."""
    with subprocess.Popen([sys.executable, "-c", SPIN, str(CORE)], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        yield child
        child.kill()


def spent_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def test_own_child_processes_are_not_foreign(spinner: subprocess.Popen[bytes], tmp_path: Path) -> None:
    stat = Stat(tmp_path)
    load, before_s = ForeignLoad((CORE,), stat.path), spent_s(spinner.pid)
    while spent_s(spinner.pid) < before_s + 0.2:
        os.sched_yield()
    used = round((spent_s(spinner.pid) - before_s) / TICK_S)
    stat.tell(*([[used, 0, 0, 900, 0, 0, 0, 0]] * (CORE + 1)))
    foreign_s, _ = load.seen()
    assert foreign_s is not None
    assert foreign_s < FOREIGN_MIN_S


@pytest.mark.parametrize(
    ("foreign_s", "watched_s", "disturbed"),
    [(None, 1.0, False), (0.04, 0.1, False), (0.06, 0.1, True), (0.06, 2.0, False), (0.2, 2.0, True)],
)
def test_noise_is_no_disturbance(foreign_s: float | None, watched_s: float, disturbed: bool) -> None:
    assert DeviceNote(foreign_s=foreign_s, watched_s=watched_s).disturbed is disturbed


def test_a_watch_reports_load_and_sentinel(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = InterferenceMonitor((CORE,))
    watch.begin(lambda cores: SentinelTimes(1.0 * len(cores), 2.0))
    watch.end()
    assert watch.note is not None
    assert (watch.note.core_s, watch.note.memory_s) == (1.0, 2.0)
    watch._seen = 0.5, 2.0
    assert watch.disturbed == "other programs used 25 % of a core of the device"


def test_for_a_board_the_note_of_the_backend_is_reported() -> None:
    watch = InterferenceMonitor(())
    watch.board = DeviceNote(1.0, 2.0, 0.1, 0.4)
    watch.end()
    assert watch.note == DeviceNote(1.0, 2.0, 0.1, 0.4)
    assert watch.disturbed == "other programs used 25 % of a core of the device"


def test_a_host_lane_has_no_note() -> None:
    watch = InterferenceMonitor(())
    watch.begin(run_sentinel)
    watch.end()
    assert watch.note is None
    assert watch.disturbed == ""
