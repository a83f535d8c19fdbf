"""The checker of `make chaos` finds each kind of violation, and accepts a correct history."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from autosched.model import JobSpec, JobState, Record
from autosched.protocol import Span
from chaos.checker import CANCEL_S, cost_of_deaths_s, counts, violations
from chaos.evidence import Evidence, Life, LoggedStep, lines, lives

STAGES = {
    "net1": (
        (10, [(0, "import"), (1, "select"), (1, "build"), (1, "profile")]),
        (11, [(0, "import"), (1, "select"), (1, "build"), (1, "profile"), (1, "update"), (0, "compile")]),
    ),
    "net2": ((12, [(0, "import"), (1, "select")]),),
}
MEASURED = {10: "aa", 11: "bb"}
LATENCY_S = (0.001,)


def written() -> dict[str, list[dict[str, object]]]:
    """Returns the clients' logs: the first client of net1 dies while it measures, and net2 is cancelled."""
    logs: dict[str, list[dict[str, object]]] = {}
    at = 0.0
    for job, clients in STAGES.items():
        log = logs[job] = []
        for pid, steps in clients:
            log.append({"event": "born", "pid": pid, "at": at})
            for number, (task, stage) in enumerate(steps):
                at += 1.0
                unit = "board0" if stage == "profile" else "host/0"
                line = {"pid": pid, "step": number, "task": task, "at": at}
                log.append({**line, "event": "began", "stage": stage, "units": [unit], "others": []})
                if stage == "profile":
                    log.append({**line, "event": "measured", "candidate": MEASURED[pid], "latency_s": LATENCY_S})
                if (pid, stage) != (10, "profile"):
                    log.append({**line, "event": "ended", "at": at + 0.5, "ok": True})
    return logs


def sound() -> Evidence:
    """Returns a correct history in which a client died and a job was cancelled."""
    evidence = Evidence({job: lives(job, log) for job, log in written().items()})
    evidence.jobs = {n: JobSpec(name=f"net{n}", model="0" * 64, trials=2, options={"lets": "mock"}) for n in (1, 2)}
    evidence.ends = {1: [JobState.DONE], 2: [JobState.CANCELLED]}
    evidence.cancels = {2}
    evidence.told = [
        *({"event": "submitted", "job": n, "name": f"net{n}", "at": 0.0} for n in (1, 2)),
        {"event": "cancelled", "job": 2, "at": 20.0},
        {"event": "ended", "job": 1, "state": "done", "at": 30.0},
    ]
    for number, step in enumerate(evidence.steps):
        outcome = "done" if step.ended_at is not None else "lost"
        span = Span(number, int(step.job[3:]), step.task, step.stage, step.units, 0.0, 0.0, 0.0, outcome)
        evidence.spans.setdefault((span.job, span.task), []).append(span)
    evidence.records = {1: [record(0, "aa"), record(1, "bb")]}
    return evidence


def record(trial: int, candidate: str, latency_s: tuple[float, ...] = LATENCY_S) -> Record:
    return Record(task=1, number=trial, candidate=bytes.fromhex(candidate), latency_s=latency_s)


def step_of(evidence: Evidence, pid: int, stage: str) -> LoggedStep:
    return next(step for step in evidence.steps if (step.pid, step.stage) == (pid, stage))


def repeat(evidence: Evidence, pid: int, stage: str) -> None:
    life = next(life for lives in evidence.lives.values() for life in lives if life.pid == pid)
    life.steps.insert(life.steps.index(step_of(evidence, pid, stage)), step_of(evidence, pid, stage))


def change(evidence: Evidence, task: int, index: int, **words: str) -> None:
    evidence.spans[1, task][index] = replace(evidence.spans[1, task][index], **words)


def test_a_sound_history_has_no_faults() -> None:
    assert violations(sound()) == []
    told = counts(sound())
    assert (told["clients_that_died"], told["steps_running_at_a_death"], told["steps_to_make_again_max"]) == (1, 1, 2)
    assert cost_of_deaths_s(sound()) == 2.0 + 2 * 0.5, "until it goes on, and what was selected and built"


WRONG: dict[str, tuple[str, Callable[[Evidence], object]]] = {
    "an accepted job is gone": ("submits", lambda e: e.told.append({"event": "submitted", "job": 3, "name": "net3"})),
    "a number was used twice": ("submits", lambda e: e.jobs.update({2: replace(e.jobs[2], name="another")})),
    "a cancelled job ended otherwise": ("cancels", lambda e: e.ends.update({2: [JobState.DONE]})),
    "a cancelled job goes on": (
        "cancels", lambda e: setattr(step_of(e, 12, "select"), "began_at", 20.1 + CANCEL_S),
    ),
    "a job does not end": ("ends", lambda e: e.ends.pop(1)),
    "a job ends twice": ("ends", lambda e: e.ends[1].append(JobState.DONE)),
    "an end was taken back": ("ends", lambda e: e.ends.update({1: [JobState.FAILED]})),
    "a completion is lost": ("completions", lambda e: e.spans[1, 1].pop(0)),
    "the last completion is lost": ("completions", lambda e: e.spans[1, 0].pop()),
    "a completion counts twice": ("completions", lambda e: e.spans[1, 1].append(e.spans[1, 1][-1])),
    "no client made what is counted": ("completions", lambda e: e.spans.update({(1, 7): [e.spans[1, 1][0]]})),
    "completions are reordered": ("completions", lambda e: e.spans[1, 1].reverse()),
    "it was counted on another unit": ("completions", lambda e: change(e, 1, 0, units=("host/1",))),  # type: ignore[arg-type]
    "a success is counted as a failure": ("completions", lambda e: change(e, 1, 0, outcome="failed")),
    "a client made a step twice": ("repetitions", lambda e: repeat(e, 11, "build")),
    "another step was on the unit": ("overlaps", lambda e: setattr(step_of(e, 11, "build"), "others", ("10",))),
    "times overlap": ("overlaps", lambda e: setattr(step_of(e, 10, "build"), "ended_at", 5.1)),
    "a record is there twice": ("trials", lambda e: e.records[1].append(record(1, "bb"))),
    "a trial counts twice": ("trials", lambda e: e.records[1].append(record(2, "bb"))),
    "the budget is exceeded": ("trials", lambda e: e.records[1].append(record(2, "cc"))),
    "the budget is not spent": ("trials", lambda e: e.records[1].pop(0)),
    "no client measured it so": ("trials", lambda e: e.records[1].append(record(2, "bb", (0.5,)))),
    "an acknowledged record is lost": (
        "trials", lambda e: e.records.update({1: [record(0, "aa"), record(1, "cc")]}),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("rule", "spoil"), WRONG.values(), ids=WRONG)
def test_faults_are_found(rule: str, spoil: Callable[[Evidence], object]) -> None:
    evidence = sound()
    spoil(evidence)
    assert rule in {found.partition(":")[0] for found in violations(evidence)}


def with_equal_code(code: str | None) -> Evidence:
    """Returns a history with a second round, whose only build has this object code and was not measured; the measured
    code is "c1"."""
    evidence = sound()
    evidence.jobs[1] = replace(evidence.jobs[1], trials=3)
    step_of(evidence, 11, "profile").codes = {"bb": "c1"}
    life, spans = evidence.lives["net1"][1], evidence.spans[1, 1]
    at = life.steps.index(step_of(evidence, 11, "update")) + 1
    for number, stage in enumerate(("select", "build", "update")):
        step = LoggedStep("net1", 11, 1, stage, ("host/0",), (), 40.0 + number, 40.5 + number, ok=True)
        step.codes = {"cc": code} if stage == "build" else {}
        life.steps.insert(at + number, step)
    for number, stage in enumerate(("select", "build", "profile", "update")):
        unit = "board0" if stage == "profile" else "host/0"
        spans.append(Span(100 + number, 1, 1, stage, (unit,), 0.0, 0.0, 0.0, "done"))
    detail = "not measured: the same object code as trial 1"
    evidence.records[1].append(replace(record(2, "cc"), detail=detail))
    return evidence


def test_equal_object_code_is_measured_once_and_its_profile_step_calls_no_backend() -> None:
    assert violations(with_equal_code("c1")) == []


@pytest.mark.parametrize("code", ["c2", "", None], ids=["other code", "unknown code", "it failed to build"])
def test_a_latency_of_other_object_code_is_found(code: str | None) -> None:
    assert "trials" in {found.partition(":")[0] for found in violations(with_equal_code(code))}


def test_a_profile_step_without_a_log_is_found_if_its_code_was_never_timed() -> None:
    assert "completions" in {found.partition(":")[0] for found in violations(with_equal_code("c2"))}


def test_a_profile_step_without_a_log_is_found_if_the_build_before_logged_no_code() -> None:
    evidence = with_equal_code("c1")
    next(step for step in evidence.steps if "cc" in step.codes).codes.clear()
    assert "completions" in {found.partition(":")[0] for found in violations(evidence)}


def test_a_latency_of_equal_code_is_one_that_was_measured() -> None:
    evidence = with_equal_code("c1")
    evidence.records[1][-1] = replace(evidence.records[1][-1], latency_s=(0.5,))
    assert "trials" in {found.partition(":")[0] for found in violations(evidence)}


def test_a_client_that_died_before_its_first_step_costs_nothing_but_time() -> None:
    evidence = sound()
    evidence.lives["net1"].insert(1, Life(13))
    assert violations(evidence) == []
    assert cost_of_deaths_s(evidence) == cost_of_deaths_s(sound())


def test_a_log_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "net1.log"
    path.write_text("".join(json.dumps(line) + "\n" for line in written()["net1"]))
    first, second = lives("net1", lines(path))
    assert [life.pid for life in (first, second)] == [10, 11]
    dying = first.steps[-1]
    assert (dying.stage, dying.ended_at, dying.measured) == ("profile", None, [("aa", LATENCY_S)])
    assert [step.stage for step in second.acknowledged()] == ["import", "select", "build", "profile"]
