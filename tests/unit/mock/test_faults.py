from collections import Counter
from pathlib import Path

import pytest

from autosched_backend_mock.faults import Fault, Faults
from autosched_backend_mock.options import read

STEPS = [(task, stage) for _ in range(300) for task in (1, 2) for stage in ("select", "build", "profile", "update")]


def life(folder: Path, seed: int = 0, **options: bool | int | float | str) -> list[Fault]:
    faults = Faults(read(options), seed, folder)
    return [faults.of_step(task, stage) for task, stage in STEPS]


def test_nothing_goes_wrong_unasked(tmp_path: Path) -> None:
    assert set(life(tmp_path)) == {Fault.NONE}


def test_each_fault_comes_as_often_as_asked(tmp_path: Path) -> None:
    count = Counter(life(tmp_path, step_fail_ratio=0.3, hang_ratio=0.2, crash_ratio=0.1))
    shares = {fault: number / len(STEPS) for fault, number in count.items()}
    asked = {Fault.FAIL: 0.3, Fault.HANG: 0.2, Fault.CRASH: 0.1, Fault.NONE: 0.4}
    assert shares == pytest.approx(asked, abs=0.05)


def test_the_same_seed_fails_in_the_same_way_but_the_next_life_does_not(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
    first, second = (life(tmp_path / "a", seed=3, step_fail_ratio=0.5) for _ in range(2))
    again = life(tmp_path / "b", seed=3, step_fail_ratio=0.5)
    assert first == again != second


@pytest.mark.parametrize(("option", "fault"), [("hang_stage", Fault.HANG), ("crash_stage", Fault.CRASH)])
def test_a_stage_that_is_named_always_goes_wrong(option: str, fault: Fault, tmp_path: Path) -> None:
    faults = Faults(read({option: "build"}), 0, tmp_path)
    assert [faults.of_step(1, stage) for stage in ("build", "build", "profile")] == [fault, fault, Fault.NONE]
    assert faults.of_stage("import") is Fault.NONE
