"""Each check finds the backend that violates its requirement, and accepts a valid one."""

import inspect
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from autosched.conformance.backend_harness import Subject
from autosched.conformance.check_runner import CHECKS, DEADLINE_S, Runner

pytestmark = pytest.mark.slow

OTHERS = {
    "the_model_is_imported": ("the_model_is_imported", "imports_nothing", "imports_with_a_bug"),
    "latencies_are_latencies": (
        "measures_nan", "measures_less_than_nothing", "measures_for_ever", "measures_in_words",
    ),
    "select_gives_bytes": ("select_gives_bytes", "selects_giants"),
    "learn_takes_what_a_job_measured": ("learn_takes_what_a_job_measured", "obeys_strangers"),
    "what_is_promised_is_there": ("what_is_promised_is_there", "hides_what_it_has"),
    "a_session_opens": ("a_session_opens", "opens_something_else"),
}  # fmt: skip
CASES = [(check, name) for check in CHECKS for name in OTHERS.get(check, (check,))]
ALONE = {"it_says_little", "it_writes_nowhere_else", "it_leaves_no_process_behind", "it_begins_again_after_a_crash"}
"""Checks that inspect the process they run in, or start others."""

ASKS = """
import sys, msgspec
from autosched.conformance.backend_harness import Subject
from autosched.conformance.check_runner import Runner
Runner(msgspec.json.decode(sys.argv[1], type=Subject)).check("build_answers_each_candidate")
"""


def subject(folder: Path, name: str) -> Subject:
    (folder / "model").write_bytes(b"any")
    hanging = {"build": {"hang": True}} if name == "kill_ends_what_hangs" else {}
    return Subject(
        entry=f"unit.conformance.broken:{name}", model=str(folder / "model"), hanging=hanging, rounds=12,
        growth_bytes=16 * 1024**2, kill_s=20.0 if name == "Good" else 0.3,
    )  # fmt: skip


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    with Runner(subject(tmp_path_factory.mktemp("healthy"), "Good")) as runner:
        yield runner


@pytest.mark.parametrize("check", CHECKS)
def test_a_healthy_backend_passes(check: str, healthy: Runner) -> None:
    verdict = healthy.check(check)
    assert verdict.state == ("n/a" if check == "kill_ends_what_hangs" else "ok"), verdict.lines()


@pytest.mark.parametrize(("check", "name"), CASES, ids=[name for _, name in CASES])
def test_a_broken_backend_is_found_and_explained(check: str, name: str, tmp_path: Path) -> None:
    with Runner(subject(tmp_path, name), isolated=check in ALONE) as runner:
        verdict = runner.check(check)
    assert verdict.state == "broken"
    what, must_be, seen, *where, advice = verdict.lines()
    assert what == f"FAIL {check}"
    assert all(len(text) > 20 for text in (must_be, seen, advice))
    if check != "it_begins_again_after_a_crash":  # which is seen in another process
        assert "broken.py:" in where[0]


def test_nothing_else_is_checked_before_the_model_is_imported(tmp_path: Path) -> None:
    with Runner(subject(tmp_path, "the_model_is_imported"), isolated=False) as runner:
        verdicts = {check: runner.check(check) for check in CHECKS}
    assert [check for check, verdict in verdicts.items() if verdict.state == "broken"] == ["the_model_is_imported"]
    assert list(verdicts)[:3] == ["the_interface_version_is_accepted", "a_session_opens", "the_model_is_imported"]
    assert verdicts["select_is_pure"].seen == "not checked: the_model_is_imported must be mended first"


def test_each_check_has_a_promise_and_advice() -> None:
    for name, check in CHECKS.items():
        promise, _, advice = (inspect.getdoc(check) or "").partition("\n\n")
        assert promise.endswith("."), name
        assert advice, name
    assert 25 <= len(CHECKS) <= 50


@pytest.mark.parametrize(
    "check",
    [
        "select_is_pure", "the_same_seed_selects_the_same", "restoring_twice_gives_the_same",
        "learning_twice_gives_the_same",
    ],
)  # fmt: skip
def test_the_first_place_where_two_answers_differ_is_shown(check: str, tmp_path: Path) -> None:
    with Runner(subject(tmp_path, "learned_other_last_words"), isolated=False) as runner:
        seen = runner.check(check).seen
    _, _, told = seen.partition("number 2 is ")
    one, _, other = told.partition(" and ")
    assert one.startswith("...0000"), seen
    assert one != other
    assert len(seen) < 400


def test_a_backend_without_learn_skips_only_that_check(tmp_path: Path) -> None:
    with Runner(subject(tmp_path, "cannot_learn_nor_build"), isolated=False) as runner:
        for check in ("learn_takes_what_a_job_measured", "learning_twice_gives_the_same"):
            assert runner.check(check).state == "n/a"
        assert runner.check("build_answers_each_candidate").state == "broken"


def test_a_backend_that_ends_its_process_costs_only_the_check_that_saw_it(tmp_path: Path) -> None:
    with Runner(subject(tmp_path, "segfaults")) as runner:
        verdict = runner.check("build_answers_each_candidate")
        assert verdict.state == "broken"
        assert verdict.seen == "the process in which it ran was killed by SIGSEGV"  # with its own last output only
        assert runner.check("select_is_pure").state == "ok"


def test_a_stage_that_cannot_be_killed_does_not_delay_the_suite(tmp_path: Path) -> None:
    with Runner(subject(tmp_path, "never_ends"), deadline_s=3.0) as runner:
        assert runner.check("build_answers_each_candidate").seen.startswith("it did not end within 3 s")
        runner._deadline_s = DEADLINE_S
        assert runner.check("select_is_pure").state == "ok"


def test_a_hanging_check_ends_with_its_parent(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "number")
    words = (sys.executable, "-c", ASKS, msgspec.json.encode(subject(tmp_path, "tells_its_number")).decode())
    asking = subprocess.Popen(words, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    number = os.pidfd_open(int((tmp_path / "number").read_text()))
    asking.kill()
    asking.wait()
    assert select.select([number], [], [], DEADLINE_S)[0], "it is still there"
    os.close(number)


def test_a_backend_that_prints_and_reads_disturbs_no_check(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with Runner(subject(tmp_path, "chatters")) as runner:
        for check in ("build_answers_each_candidate", "it_says_little", "the_job_ends_with_an_evaluation"):
            assert runner.check(check).state == "ok"
    assert capfd.readouterr().out == ""
