"""What is said of search methods that were compared."""

import math
from pathlib import Path
from typing import Any

import pytest
from search_page import best_s, drawn, equalled, medians, ranking, ratio, section, tables, write


def run(method: str, *latencies_s: float, task: str = "conv", seed: int = 1, again_s: float | None = None) -> Any:
    """The best so far after each trial."""
    curve = [[n, 2.0 * n, min(latencies_s[:n])] for n in range(1, len(latencies_s) + 1)]
    return {
        "task": task, "method": method, "seed": seed, "trials": 64, "measured": len(latencies_s), "failed": 1,
        "flops": 1e9, "curve": curve, "again_s": {} if again_s is None else {"64": again_s},
        "stages_s": {"select": 1.0, "build": 2.0, "profile": 3.0, "update": 4.0},
    }  # fmt: skip


def test_the_best_is_what_was_measured_again() -> None:
    assert best_s(run("tc", 3.0, 2.0), 64) == 2.0
    assert best_s(run("tc", 3.0, 2.0, again_s=2.5), 64) == 2.5
    assert best_s(run("tc", 3.0, 2.0), 1) == 3.0
    assert best_s(run("tc"), 64) is None
    assert best_s(run("tc", 1.0), 256) is None


def test_ratios_are_geometric_means_over_tasks_of_pairs_of_equal_seeds() -> None:
    runs = [
        run("tc", 1.0, task="a", seed=1), run("tc random", 2.0, task="a", seed=1),
        run("tc", 4.0, task="a", seed=2), run("tc random", 2.0, task="a", seed=2),
        run("tc", 1.0, task="b", seed=1), run("tc random", 4.0, task="b", seed=1),
        run("tc", 0.1, task="b", seed=2), run("tc", 0.1, task="c", seed=1),
    ]  # fmt: skip
    found = ratio(runs, "tc", "tc random", 64)
    assert found is not None
    mean, error, tasks = found
    assert mean == pytest.approx(math.sqrt(1.0 * 0.25))
    assert error > 1.0
    assert tasks == 2
    assert ratio(runs, "tc", "ansor", 64) is None


def test_how_many_trials_equal_what_another_method_ends_with() -> None:
    runs = [
        run("tc", 8.0, 2.0, 1.0), run("tc random", 4.0, 3.0, 2.0),
        run("tc", 8.0, 8.0, 2.0, seed=2), run("tc random", 9.0, 9.0, 8.0, seed=2),
        run("tc", 0.1, task="another"),
    ]  # fmt: skip
    assert equalled(runs, "tc", "tc random", 64) == 2
    assert equalled(runs, "tc random", "tc", 64) is None
    assert equalled(runs, "tc", "ansor", 64) is None
    slow = [run("tc", 9.0, 1.005), run("tc random", 1.0)]
    assert (equalled(slow, "tc", "tc random", 64), equalled(slow, "tc", "tc random", 64, 0.01)) == (None, 2)


def test_the_median_curve_begins_when_all_seeds_have_something() -> None:
    late = run("tc", 9.0, 5.0)
    late["curve"] = late["curve"][1:]
    assert medians([run("tc", 3.0, 3.0, 1.0), late], 0) == [(2.0, 4.0), (3.0, 3.0)]
    assert medians([run("tc", 3.0)], 1) == [(2.0, 3.0)]


def test_page_and_section(tmp_path: Path) -> None:
    told = {"machine": "m <1>", "runs": [run("tc", 3.0, 2.0), run("tc random", 4.0)], "skipped": ["x, autotvm: no"]}
    write(told, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "m &lt;1&gt;" in text
    assert text.count("<svg") == 2
    assert "$" not in text
    lines = "\n".join(section(told))
    assert "| tc / tc random | <= 0.90 | 0.500" in lines
    assert "- Not possible: x, autotvm: no." in lines
    assert "| conv | 0.5 | - | 1.000 | 0.500 |\n| all |  |  | 1.000 | 0.500 |" in lines


def test_nothing_valid_draws_nothing() -> None:
    assert drawn([run("tc")], {"tc": "#000"}, 0) == ""


def test_what_is_taught_saves_is_told_by_task() -> None:
    runs = [run("autotvm xgb", 4.0, 2.0, task=task, again_s=2.2) for task in "ab"]
    runs += [run("autotvm taught", 3.0, 1.1, task="a"), run("autotvm taught", 2.2, task="b")]
    runs.append(run("autotvm taught", 1.0, task="c"))
    (head, rows), *_ = (table for title, table in tables({"runs": runs}).items() if "32 trials" in title)
    assert len(head) == 3
    assert rows == [("a", "1", "0.500"), ("b", "1", "1.000"), ("all", "2", "0.707")]


def test_what_twice_the_trials_bring() -> None:
    long = run("tc", *[2.0] * 8, *[1.0] * 24)
    (_, *bounds), rows = next(table for title, table in tables({"runs": [long]}).items() if "twice" in title)
    assert bounds == ["8 to 16", "16 to 32", "32 to 64"]
    assert rows == [("tc", "100.0%", "0.0%", "-")]


def test_what_there_is_to_win() -> None:
    runs = [run("tc random", *latencies_s, seed=seed) for seed, latencies_s in enumerate([(9.0, 4.0), (2.0,), (5.0,)])]
    runs += [run("ansor", 1.0), run("ansor", 1.0, task="without chance"), run("tc random", 2.0, task="poor")]
    head, rows = next(table for title, table in tables({"runs": runs}).items() if "to win" in title)
    assert head == ("task", "autotvm random", "autotvm random wide", "tc random")
    assert rows == [("conv", "-", "-", "0.250"), ("poor", "-", "-", "1.000"), ("all", "-", "-", "0.500")]
    assert not next(rows for title, (_, rows) in tables({"runs": [run("tc", 1.0)]}).items() if "to win" in title)


def test_what_a_model_knows() -> None:
    scores = {"as it is": [0.5, 0.25, 1.0123], "stores": [-0.5, 0.0, 2.0]}
    lines = ranking({"rows": [{"task": "conv", "records": 16, "runs": 2, "scores": scores}]})
    assert lines[-1] == "| conv | 16 | 0.50, 0.25, 1.012 | - | - | -0.50, 0.00, 2.000 |"
    assert lines[-3].count("|") == lines[-1].count("|")
