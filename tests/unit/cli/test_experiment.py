"""The progress of `autosched experiment run` at a terminal."""

from pathlib import Path

import pytest

from autosched.cli import experiment_display
from autosched.experiments.definition import parse
from autosched.experiments.plan import plan
from autosched.experiments.rows import Row
from autosched.experiments.runner import Progress


@pytest.mark.parametrize(("seconds", "said"), [(75.0, "about 1m15s left"), (0.0, "about 0s left")])
def test_progress_has_a_bar_and_a_line_for_each_job(seconds: float, said: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"model")
    planned = plan(parse('[parameters]\nmodel = "a"\nseed = [0, 1, 2, 3]\n', tmp_path / "mine.toml"))
    first = planned.jobs[0]
    row = Row(
        combination=first.combination, values=first.values, job=1, state="done", latency_s=1e-3, trials=8, took_s=5.0
    )
    progress = Progress(4, {first.combination: row}, {}, frozenset())
    head, *_, last = experiment_display.picture(planned, progress, seconds)
    assert head == f" mine  1 of 4 jobs  [########......................]  25 %  {said}"
    assert "Ctrl-C ends this command" in last
    assert experiment_display.ended(planned, row, 1, 4) == "1/4  seed 0: 1.00 ms, 8 trials in 5s"
