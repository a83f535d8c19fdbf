import contextlib
import sqlite3
from pathlib import Path
from statistics import mean

import msgspec
import pytest

from autosched.core.events import JobSubmitted, ResourcesDeclared
from autosched.errors import AutoschedError, RequestError
from autosched.model import NETWORK_TASK, JobSpec, Pool, Unit
from autosched.protocol import Span
from autosched_backend_mock.options import read
from autosched_backend_mock.time_sources import Clock, chosen

ROUND = ("select", "build", "profile", "update")


def clock(seed: int = 0, **options: bool | int | float | str) -> Clock:
    spec = JobSpec(name="net", model="0" * 64, backend="mock", seed=seed)
    return chosen(read(options), spec)


def drawn(made: Clock) -> list[float]:
    return [made.seconds(task, stage, nth) for task in (1, 2) for stage in ROUND for nth in range(50)]


def test_a_constant_time_is_the_same_in_each_round_and_scales() -> None:
    made = clock(build_s=8.0, time_scale=0.25)
    assert {made.seconds(task, "build", nth) for task in (1, 2) for nth in range(9)} == {2.0}
    assert made.seconds(1, "profile", 0) == 0.0


def test_equal_seeds_draw_equal_times_with_the_mean_that_was_set() -> None:
    options = {"select_s": 2.0, "build_s": 2.0, "profile_s": 2.0, "update_s": 2.0, "spread": 0.4}
    first, again, other = (drawn(clock(seed, **options)) for seed in (7, 7, 8))
    assert first == again != other
    assert len(set(first)) == len(first)
    assert mean(first) == pytest.approx(2.0, rel=0.1)
    assert min(first) < 1.4 < 2.8 < max(first)


# Instances ------------------------------------------------------------------------------------------------------------

TWO_JOBS = """{"instances": [{"name": "tiny", "hosts": 1, "devices": 1, "jobs": [
    {"host": 0, "iterations": [[1, 2, 3]]}, {"host": 0, "iterations": [[4, 5, 6], [7, 8, 9]]}]}]}"""


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.json"
    path.write_text(TWO_JOBS)
    return path


def test_an_instance_gives_its_jobs_rounds_and_times(tiny: Path) -> None:
    made = clock(instance=str(tiny), instance_name="tiny", instance_job=1, time_scale=0.01)
    network = made.times.network()
    assert ([task.task for task in network.tasks], network.batch, network.default_trials) == ([1], 1, 2)
    assert made.times.rounds(1) == 2
    assert [made.seconds(1, stage, 1) for stage in ROUND] == pytest.approx([0.0, 0.07, 0.08, 0.09])


def test_what_an_instance_says_nothing_of_is_for_the_options(tiny: Path) -> None:
    made = clock(instance=str(tiny), import_s=3.0, build_s=99.0, select_s=99.0)
    assert made.seconds(NETWORK_TASK, "import", 0) == 3.0
    assert (made.seconds(1, "build", 0), made.seconds(1, "select", 0)) == (1.0, 0.0)


def test_the_standard_instances_need_no_file() -> None:
    made = clock(instance="standard", instance_name="hom-N2-C1-M1-s1", instance_job=1)
    assert made.times.rounds(1) == 10
    assert [made.seconds(1, stage, 9) for stage in ROUND] == [0.0, 8.3, 39.5, 44.0]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"instance": "tiny.json"}, "give the whole path, from /"),
        ({"instance": "{folder}/none.json"}, "none.json cannot be read"),
        ({"instance": "{folder}/tiny.json", "instance_name": "huge"}, "no instance named 'huge'; set instance_name to"),
        ({"instance": "{folder}/tiny.json", "instance_job": 2}, "tiny has 2 jobs; choose one of 0 to 1"),
        ({"instance": "standard"}, "has more than one instance; set instance_name to one of: hom-N2-C1-M1-s1"),
        ({"journal": "{folder}/none.db"}, "none.db"),
        ({"journal": "{folder}/tiny.json"}, "tiny.json is no recording"),
    ],
)
def test_a_source_that_is_not_there_is_refused_in_words(options: dict[str, str | int], said: str, tiny: Path) -> None:
    given = {
        name: str(value).format(folder=tiny.parent) if isinstance(value, str) else value
        for name, value in options.items()
    }
    with pytest.raises(AutoschedError) as refused:
        clock(**given)
    assert said in str(refused.value)


# Recordings -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A database with one job of two tasks; the first had two rounds, the second of which ended with its build."""
    path = tmp_path / "autosched.db"
    declared = ResourcesDeclared((Pool("host", (Unit("host/0"),)),), 600.0, 60.0)
    submitted = JobSubmitted(1, JobSpec(name="net", model="0" * 64))
    steps = [
        (NETWORK_TASK, "import", 5.0), (1, "build", 1.0), (2, "build", 4.0), (1, "profile", 2.0), (1, "update", 3.0),
        (1, "build", 1.5), (NETWORK_TASK, "compile", 6.0),
    ]  # fmt: skip
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE journal (seq INTEGER PRIMARY KEY, now REAL, event BLOB, crc INTEGER) STRICT")
        db.execute("CREATE TABLE spans (step INTEGER PRIMARY KEY, body BLOB) STRICT")
        for number, event in enumerate((declared, submitted), start=1):
            db.execute("INSERT INTO journal VALUES (?, 0.0, ?, 0)", (number, msgspec.msgpack.encode(event)))
        for number, (task, stage, seconds) in enumerate(steps, start=1):
            at, worked_s = 100.0 * number, seconds if stage != "update" else None
            span = Span(number, 1, task, stage, ("host/0",), at, at, at + seconds, "done", worked_s)
            db.execute("INSERT INTO spans VALUES (?, ?)", (number, msgspec.msgpack.encode(span)))
    db.close()
    return path


def test_a_recording_gives_its_jobs_tasks_rounds_and_times(recording: Path) -> None:
    made = clock(journal=str(recording), journal_job=1, time_scale=0.1)
    network = made.times.network()
    assert ([task.task for task in network.tasks], network.batch, network.default_trials) == ([1, 2], 1, 3)
    assert (made.times.rounds(1), made.times.rounds(2)) == (2, 1)
    assert [made.seconds(1, stage, 0) for stage in ROUND] == pytest.approx([0.0, 0.1, 0.2, 0.3])
    assert [made.seconds(1, stage, 1) for stage in ROUND] == pytest.approx([0.0, 0.15, 0.0, 0.0])
    assert made.seconds(2, "build", 0) == pytest.approx(0.4)
    network_s = [made.seconds(NETWORK_TASK, stage, 0) for stage in ("import", "compile", "evaluate")]
    assert network_s == pytest.approx([0.5, 0.6, 0.0])


def test_a_job_that_is_not_recorded_is_refused_in_words(recording: Path) -> None:
    with pytest.raises(RequestError, match="no rounds of job 2; set journal_job to one of: 1"):
        clock(journal=str(recording.parent / "autosched.db"), journal_job=2)
