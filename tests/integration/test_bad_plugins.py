"""Faulty backends of other packages: each of their jobs ends with a clear message, and other jobs are unaffected."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from autosched.backend import GROUP
from autosched.protocol import JobView
from integration.lab import Lab, lab
from packages import BROKEN, install

GOOD = (Path(__file__).parents[1] / "unit/conformance/broken.py").read_text()
BAD = '''
import os, signal, socket, sys, threading, time
from their_good import *


def once(workdir):
    """True in the first life of the job only."""
    mark = workdir / "lived"
    lived = mark.exists()
    mark.touch()
    return not lived


def staged(stage, act):
    """A backend that calls `act` at the start of a stage."""
    class T(Tuner):
        pass

    def acting(self, *words):
        act(self.session)
        return getattr(Tuner, stage)(self, *words)

    setattr(T, stage, acting)
    return type("Bad", (Good,), {"session": of(T)})


def answering(stage, answer):
    """A backend whose session or tuner answers nonsense."""
    kind = Session if hasattr(Session, stage) else Tuner
    bad = type("Bad", (kind,), {stage: lambda self, *words: answer})
    return type("Bad", (Good,), {"session": bad if kind is Session else of(bad)})


def segfault(session):
    os.kill(os.getpid(), signal.SIGSEGV)


def segfault_once(session):
    if once(session.workdir):
        segfault(session)


def hang_once(session):
    if once(session.workdir):
        threading.Event().wait()


def leak(session):
    session.leaked = [*getattr(session, "leaked", ()), os.urandom(1) * 64 * 1024**2]
    time.sleep(0.3)


def talk(session):
    print("hello", sys.stdin.read(), flush=True)
    os.write(1, os.urandom(1000))


def stumble(session):
    raise RuntimeError("boom")


def shout_at_the_daemon(session):
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                os.write(int(name), b"\\xff" * 100)
        except OSError:
            pass
    time.sleep(0.1)


class Single(Good):
    """There is one configuration."""
    class T(Tuner):
        def select(self, count, lease):
            return [one for one in (b"1",) if one not in self.tried]

    session = of(T)


class Unlucky(Good):
    """No candidate of its first task can be built."""
    class T(Tuner):
        def made(self, candidate):
            return Built(candidate, failure=Failure.BUILD_ERROR, detail="on purpose")

    class session(Session):
        def import_network(self, lease):
            return Network(tuple(TaskInfo(task=n, name=f"toy{n}", workload=f"toy{n}") for n in (1, 2)), batch=4)

        def tuner(self, task, seed):
            return (Unlucky.T if task.task == 1 else Tuner)(self, seed)


class Old(Good):
    api = (9, 0)


class Raises(Good):
    def open(self, *words):
        raise ZeroDivisionError("on purpose")


Segfaults, SegfaultsOnce = staged("build", segfault), staged("build", segfault_once)
Stumbles = staged("profile", stumble)
HangsOnce, Leaks = staged("build", hang_once), staged("build", leak)
Talks, Shouts = staged("profile", talk), staged("profile", shout_at_the_daemon)
NoNetwork, NoCandidates = answering("import_network", {"tasks": []}), answering("select", [1, 2, 3])
NoBuilt, NoEvaluation = answering("build", "garbage"), answering("evaluate", b"garbage")
'''
MODULES = {"their_good": GOOD, "their_bad": BAD, "their_unimportable": BROKEN, "their_end": "raise SystemExit(0)\n"}


def entries() -> dict[str, str]:
    bad = ("Old", "Raises", "Segfaults", "SegfaultsOnce", "HangsOnce", "Leaks", "Talks", "Shouts", "NoNetwork")
    bad += ("Stumbles", "NoCandidates", "NoBuilt", "NoEvaluation", "Single", "Unlucky")
    good = ("measures_nan", "measures_less_than_nothing", "measures_for_ever", "measures_in_words")
    return {
        **{name: f"their_bad:{name}" for name in bad},
        **{name: f"their_good:{name}" for name in good},
        "unimportable": "their_unimportable:it",
        "ends": "their_end:it",
        "nothing": "their_good:no_such_name",
    }


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., JobView]:
    """Runs a job of a bad backend beside a healthy job in one daemon; returns the bad one's end."""
    theirs = install(tmp_path / "theirs", GROUP, MODULES, **entries())
    monkeypatch.setenv("PYTHONPATH", str(theirs))

    @contextmanager
    def alive(settings: str) -> Iterator[Lab]:
        with lab(tmp_path, settings) as there:
            assert there._process is not None
            yield there
            assert there._process.poll() is None, "the daemon died"

    def run(backend: str, settings: str = "", trials: int = 16) -> JobView:
        with alive(settings) as there:
            bad = there.submit(backend=backend.replace("_", "-"), trials=trials)
            healthy = there.submit(trials=16, tasks=2)
            assert there.wait(healthy).state == "done"
            view = there.wait(bad)
            run.records = there.records(bad)  # type: ignore[attr-defined]
            return view

    run.log = tmp_path / "daemon.log"  # type: ignore[attr-defined]
    return run


def why(view: JobView) -> str:
    """Returns the reason of a failed job."""
    assert view.state == "failed", view.state
    assert view.failure is not None
    return view.failure.message


@pytest.mark.parametrize(
    ("backend", "reason"),
    [
        ("Old", "was written for interface 9.0, this autosched has 2."),
        (
            "unimportable",
            "of the package theirs cannot be loaded from their_unimportable:it: ModuleNotFoundError: No mo",
        ),
        ("nothing", "cannot be loaded from their_good:no_such_name: AttributeError"),
        ("ends", "cannot be loaded from their_end:it: SystemExit: 0"),
        ("Raises", "raised when it opened the job: ZeroDivisionError: on purpose"),
        ("NoNetwork", "the backend's network cannot be used: it is a dict, not a Network"),
        ("NoCandidates", "select gave a int as a candidate; candidates are bytes"),
        ("NoBuilt", "build must answer with one Built for each of the"),
        ("NoEvaluation", "the backend's evaluation cannot be used: it is a bytes, not a Evaluation"),
        ("Segfaults", "killed by SIGSEGV"),
        ("Stumbles", "profile: RuntimeError: boom (their_bad.py:"),
    ],
)
def test_an_impossible_job_fails_with_its_reason(running: Callable[..., JobView], backend: str, reason: str) -> None:
    assert reason in why(running(backend))


def test_a_client_that_segfaults_is_replaced_and_the_job_continues(running: Callable[..., JobView]) -> None:
    assert running("SegfaultsOnce").state == "done"
    assert "killed by SIGSEGV" in running.log.read_text()  # type: ignore[attr-defined]


def test_a_stage_that_writes_garbage_to_the_daemon_costs_connections_and_not_the_job(
    running: Callable[..., JobView],
) -> None:
    assert running("Shouts").state == "done"
    assert "a frame of 4294967295 bytes was announced; at most" in running.log.read_text()  # type: ignore[attr-defined]


def test_a_stage_that_hangs_and_cannot_be_killed_costs_its_client_and_not_its_job(
    running: Callable[..., JobView],
) -> None:
    assert running("HangsOnce", "[scheduler]\nstep_timeout_s = 3.0\n").state == "done"
    assert "RevokeStep" in running.log.read_text()  # type: ignore[attr-defined]


def test_a_space_of_a_single_configuration_is_measured_and_the_job_is_done(running: Callable[..., JobView]) -> None:
    view = running("Single", trials=1_000)
    assert (view.state, view.trials, view.estimate_s) == ("done", 1, pytest.approx(1e-4))


def test_a_task_whose_candidates_all_fail_gets_no_more_rounds(running: Callable[..., JobView]) -> None:
    view = running("Unlucky", trials=64)
    assert view.state == "done"
    unlucky, lucky = view.tasks
    assert (unlucky.best_s, lucky.best_s, view.estimate_s) == (None, pytest.approx(1e-4), None)
    assert unlucky.trials == unlucky.failed == view.failures["build error"] < lucky.trials


@pytest.mark.parametrize(
    ("backend", "said"),
    [
        ("measures_nan", "a latency of nan s"),
        ("measures_less_than_nothing", "a latency of -0.001 s"),
        ("measures_for_ever", "a latency of inf s"),
        ("measures_in_words", "could not convert string to float: 'fast'"),
    ],
)
def test_impossible_latencies_are_failed_trials(running: Callable[..., JobView], backend: str, said: str) -> None:
    view = running(backend)
    assert view.state == "done"
    assert view.failures == {"run error": view.trials}
    (detail,) = {record.detail for record in running.records}  # type: ignore[attr-defined]
    assert detail == f"the backend measured nonsense: {said}"


def test_a_client_that_leaks_is_replaced_before_memory_is_short(running: Callable[..., JobView]) -> None:
    limit = 300 * 1024**2
    view = running("Leaks", f"[limits]\nclient_bytes_max = {limit}\n", trials=160)
    assert view.trials > 0
    assert "of memory; limits.client_bytes_max is 300 MiB" in running.log.read_text()  # type: ignore[attr-defined]
    if view.state != "done":
        assert "limits.client_bytes_max" in why(view)


def test_what_a_backend_prints_reaches_its_log_and_nothing_else(running: Callable[..., JobView]) -> None:
    view = running("Talks")
    assert view.state == "done"
    assert "hello" in (running.log.parent / f"jobs/{view.job}/client.log").read_text(errors="replace")  # type: ignore[attr-defined]


def test_the_memory_of_a_client_is_reported(tmp_path: Path) -> None:
    with lab(tmp_path) as there:
        job = there.submit(trials=8, tasks=1, hang_stage="build")
        while (held := there.wait(job, until="trials", trials=0).client_bytes) < 8 * 1024**2:
            pass  # it is still starting
        assert held < 1024**3
