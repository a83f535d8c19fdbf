"""Starter books are made of the configurations that together come nearest to the best of each task."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tvm")
pytestmark = pytest.mark.tvm

from autosched.recordstore import opening  # noqa: E402
from autosched.recordstore.rows import StoredRanker  # noqa: E402
from autosched.recordstore.store import RecordStore  # noqa: E402
from autosched_backend_autotvm.config_space import Config, ConfigSpace, Knob  # noqa: E402
from autosched_backend_autotvm.make_starter_book import (  # noqa: E402
    Measured,
    chapter,
    covering,
    main,
    predicted_speeds,
)
from autosched_backend_autotvm.task_features import TaskFeatures  # noqa: E402

TILES = (1, 2, 4, 8, 16, 32, 64)


def test_columns_are_chosen_by_what_they_add() -> None:
    speeds = np.array([[1.0, 0.0, 0.7], [1.0, 0.2, 0.7], [0.1, 1.0, 0.7]], np.float32)
    assert covering(speeds, [0, 0, 0]) == ([0, 1], [0.7, 1.0])
    assert covering(speeds, [0.9, 0.9, 0])[0] == [1, 0]


def test_a_column_that_adds_nothing_is_left_out() -> None:
    assert covering(np.array([[1.0, 1.0], [0.5, 0.5]], np.float32), [0, 0])[0] == [0]
    assert covering(np.array([[1.0, 1.0], [0.5, 0.5]], np.float32), [1, 1])[0] == []


def measured(size: int, latency_s: Callable[[Config], float | None]) -> Measured:
    """Returns a task of this size with all configurations measured."""
    space = ConfigSpace("t", (Knob("tile", TILES), Knob("order", ("a", "b"))))
    features = TaskFeatures(space, (size,))
    return Measured(space, features, {index: latency_s(space.config(index)) for index in range(space.size)})


def like(best: int) -> Callable[[Config], float | None]:
    """Returns latencies that are least with this tile and order b; the largest tile fails."""

    def latency_s(config: Config) -> float | None:
        tile = config["tile"]
        assert isinstance(tile, int)
        if tile == TILES[-1]:
            return None
        return (1.0 + abs(np.log2(tile / best))) * (2.0 if config["order"] == "a" else 1.0)

    return latency_s


def test_small_and_large_tasks_each_have_a_configuration() -> None:
    tasks = [measured(size, like(2 if size < 100 else 16)) for size in (10, 12, 14, 500, 600, 700)]
    made = chapter(tasks)
    assert {config["tile"] for config in made.configs[:2]} == {2, 16}
    assert {config["order"] for config in made.configs[:2]} == {"b"}
    assert made.tasks == 6
    assert list(made.speeds) == sorted(made.speeds)
    assert made.speeds[1] > 0.95 > made.speeds[0]


def test_a_slow_task_counts_as_much_as_a_fast_one() -> None:
    slow = [measured(size, lambda config: 1e3 * (like(16)(config) or 0) or None) for size in (500, 600)]
    fast = [measured(size, like(2)) for size in (10, 12, 14)]
    assert chapter([*slow, *fast]).configs[0]["tile"] == 2


def test_a_configuration_that_a_task_does_not_admit_has_speed_0() -> None:
    task = measured(10, like(2))
    banned = ConfigSpace(
        "t", task.space.knobs, admit=lambda config: "too large" if config["tile"] == 4 else None,
    )  # fmt: skip
    other = Measured(banned, task.features, task.latencies_s)
    pool: list[Config] = [{"tile": 4, "order": "b"}, {"tile": 2, "order": "b"}]
    speeds = predicted_speeds([task, other], pool)
    assert speeds[0, 0] > 0.3
    assert speeds[1, 0] == 0.0
    assert speeds[1, 1] == 1.0


def test_a_store_is_named_by_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "records.db"
    assert main(["--store", str(file), "--into", str(tmp_path)]) == 1
    assert f"there is no record store {file}" in capsys.readouterr().err
    assert not file.exists()
    with closing(RecordStore(opening.file_url(file))) as store:
        store.put_ranker(StoredRanker("t", "cpu", "1", 1, 0.0, {}, b""))
    assert main(["--store", str(file), "--into", str(tmp_path)]) == 1
    assert "too few measured templates" in capsys.readouterr().out
