"""The daemon's state in one line."""

from autosched.core.events import ClientAttached, ClientLost, JobSubmitted, ResourcesDeclared, UnitDrained
from autosched.core.scheduler import Scheduler
from autosched.daemon.observe.status_line import Headline
from autosched.daemon.timeline import Timeline
from autosched.model import JobLoad, JobSpec, Pool, TaskLoad, Unit

SPEC = JobSpec(name="net", model="0" * 64)
DEVICES = tuple(Unit(f"cpu{core}", (core,)) for core in (1, 2))
POOLS = (Pool("host", (Unit("host/0", (0,)),)), Pool("device:cpu", DEVICES))


def load(stage: str, pool: str, *tasks: int, seconds: float | None = None) -> JobLoad:
    return JobLoad(
        tasks=tuple(TaskLoad(task=task, resources_next=(pool,), stage_next=stage, expected_s=seconds) for task in tasks)
    )


class Lab:
    def __init__(self) -> None:
        self.core, self.timeline, self.headline = Scheduler(), Timeline(), Headline()
        self.core.handle(0.0, ResourcesDeclared(POOLS, 100.0, 60.0))

    def job(self, number: int, said: JobLoad, now: float = 0.0) -> None:
        self.core.handle(now, JobSubmitted(number, SPEC))
        self.core.handle(now, ClientAttached(number, said))

    def words(self, now: float, stalled: str = "") -> str:
        for step in self.core.state.steps.values():
            self.timeline.open(step, 0.0)
        return self.headline.words(self.core.state, self.timeline, now, stalled)


def test_an_idle_daemon_says_so() -> None:
    assert Lab().words(1.0) == "0 running, 0 waiting; host 0%, devices 2/2 up, 2 free"


def test_running_and_waiting_jobs_are_counted() -> None:
    lab = Lab()
    lab.job(1, load("profile", "device:cpu", 1, 2, seconds=30.0))
    lab.job(2, load("profile", "device:cpu", 1))
    lab.job(3, load("build", "host", 1))
    assert lab.words(8.0) == "2 running, 1 waiting; host 100%, devices 2/2 up, next free 22 s"
    assert lab.words(40.0).endswith("next free 0 s")  # it is late by an unknown time


def test_a_drained_device_is_not_up_and_unknown_ends_are_left_out() -> None:
    lab = Lab()
    lab.core.handle(0.0, UnitDrained("cpu2", "new fan", "me"))
    lab.job(1, load("profile", "device:cpu", 1))
    assert lab.words(1.0) == "1 running, 0 waiting; host 0%, devices 1/2 up"


def test_utilisation_of_lanes_is_that_of_the_last_minute() -> None:
    lab = Lab()
    turns = iter(range(5, 1_000, 5))
    assert all("host 0%" in lab.words(next(turns)) for _ in range(20))
    lab.job(1, load("build", "host", 1), now=100.0)
    assert [lab.words(next(turns)).split()[5] for _ in range(3)] == ["8%,", "17%,", "25%,"]
    lab.timeline.close(lab.timeline.ended_by(ClientLost(1, "gone"), lab.core.state, 115.0))
    lab.core.handle(115.0, ClientLost(1, "gone"))
    assert [lab.words(next(turns)).split()[5] for _ in range(12)][-4:] == ["25%,", "17%,", "8%,", "0%,"]
