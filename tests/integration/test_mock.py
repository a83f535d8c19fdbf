"""The backend that needs no compiler, in a real daemon: instances, recordings, and many faults at once."""

import json
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

from autosched.daemon.storage.database import DATABASE
from autosched.workloads import recordings
from integration.lab import Lab, ended, lab

ROUNDS = 10
INSTANCE = {"instance": "standard", "instance_name": "hom-N2-C1-M1-s1", "time_scale": 0.002}


def stages(log: Path) -> Counter[str]:
    """Returns the number of steps of each stage."""
    return Counter(json.loads(line)["stage"] for line in log.read_text().splitlines())


def test_the_jobs_of_an_instance_have_its_rounds(there: Lab, tmp_path: Path) -> None:
    logs = [tmp_path / f"job{number}.log" for number in range(2)]
    jobs = [there.submit(**INSTANCE, instance_job=number, log=str(log)) for number, log in enumerate(logs)]
    for job, log in zip(jobs, logs, strict=True):
        view = there.wait(job)
        assert (view.state, view.trials, view.trials_total) == ("done", ROUNDS, ROUNDS)
        count = stages(log)
        assert count["select"] == ROUNDS
        assert count["build"] == count["profile"] == count["update"] >= ROUNDS  # more when this machine is disturbed


def test_a_recorded_job_is_replayed_round_by_round(there: Lab, tmp_path: Path) -> None:
    log = tmp_path / "again.log"
    first = there.submit(tasks=2, trials=24, build_s=0.01, spread=0.5)
    assert there.wait(first).state == "done"
    again = there.submit(journal=str(tmp_path / DATABASE), journal_job=first, log=str(log))
    view = there.wait(again)
    before, after = (job for job in recordings.read(tmp_path).jobs)
    rounds = len(before.order)
    assert (view.state, view.trials, view.trials_total) == ("done", rounds, rounds)
    assert stages(log)["select"] == rounds
    for task, recorded_rounds in before.tasks.items():
        replayed = [steps for steps in after.tasks[task] if selected(steps)]
        for was, is_now in zip(recorded_rounds, replayed, strict=True):
            assert worked_s(is_now, "build") >= 0.9 * worked_s(was, "build") > 0


def selected(steps: recordings.Round) -> bool:
    """Returns whether the round selected candidates. Other rounds measure again, or found no round to take."""
    return {"select", "build"} <= {step.stage for step in steps}


def worked_s(steps: recordings.Round, stage: str) -> float:
    """Returns the duration of the stage in this round."""
    return next(step.worked_s or 0.0 for step in steps if step.stage == stage)


def test_a_source_that_is_not_there_fails_the_job_in_words(there: Lab) -> None:
    view = there.wait(there.submit(instance="standard", instance_name="hom"))
    assert view.state == "failed"
    assert view.failure is not None
    assert "no instance named 'hom'; set instance_name to one of: hom-N2-C1-M1-s1" in view.failure.message


def test_with_all_faults_each_job_ends_and_no_unit_is_shared(tmp_path: Path) -> None:
    log = tmp_path / "steps.log"
    settings = "[scheduler]\nstep_timeout_s = 0.4\n"
    chaos = {"step_fail_ratio": 0.1, "hang_ratio": 0.01, "crash_ratio": 0.03, "fail_ratio": 0.2, "run_fail_ratio": 0.2}
    with lab(tmp_path, settings) as there:
        jobs = [
            there.submit(trials=48, seed=seed, tasks=3, build_s=0.005, profile_s=0.005, log=str(log), **chaos)
            for seed in range(4)
        ]
        views = [there.wait(job) for job in jobs]
    assert all(ended(view) for view in views)
    assert sum(view.failed_steps for view in views) > 0
    assert {"build error", "run error"} <= {reason for view in views for reason in view.failures}
    told = (tmp_path / "daemon.log").read_text()
    assert "RevokeStep" in told  # a step hung; its time limit is learned, and longer on a busy machine
    assert "ClientLost" in told  # a client crashed
    by_unit = defaultdict(list)
    for step in map(json.loads, log.read_text().splitlines()):
        by_unit[step["units"][0]].append((step["began_at"], step["ended_at"]))
    assert len(by_unit) == 2
    for used in by_unit.values():
        assert all(before[1] <= after[0] for before, after in pairwise(sorted(used)))
