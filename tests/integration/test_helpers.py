"""Stages of one job on several hosts: helpers of its client run them, and nothing is lost when a helper dies."""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from autosched.model import JobId
from deadlines import until
from integration.lab import Lab, lab
from integration.lender import SETTINGS, Lender, check_records, hosts_of, lent

TRIALS = 640
MOVES = {"trials": TRIALS, "tasks": 8, "build_s": 0.4, "profile_s": 0.4, "movable": True}
"""Fields and options of a job with enough work for a helper: half a minute of builds."""


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Lab]:
    with lab(tmp_path, SETTINGS) as made:
        yield made


@pytest.fixture
def lender(there: Lab) -> Iterator[Lender]:
    """A host that has joined."""
    with lent(there) as made:
        yield made


def stages_on(there: Lab, job: JobId, host: str) -> Counter[str]:
    """Returns the number of successful steps of each stage of a job on a host."""
    own = (span for span in there.spans() if span.job == job and span.outcome == "done")
    return Counter(span.stage for span in own if span.units[0].partition("@")[2] == host)


def helped(there: Lab, lender: Lender, **words: object) -> tuple[JobId, str]:
    """Returns a job whose client has a helper on the other host, and the name of that host."""
    job = there.submit(**{**MOVES, **words})
    until(lambda: len(hosts_of(there, job)) == 2, "a helper works")
    return job, "lab2" if stages_on(there, job, "")["import"] else ""


def processes(folder: Path) -> list[int]:
    """Returns the processes of clients and helpers that work in a folder."""
    mark, found = f"AUTOSCHED_JOB_DIR={folder}".encode(), []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and any(v.startswith(mark) for v in (entry / "environ").read_bytes().split(b"\0")):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def where(there: Lab, lender: Lender, host: str) -> Path:
    """Returns the folder of the clients on a host."""
    return lender.jobs if host else there.folder / "jobs"


def ends_well(there: Lab, job: JobId) -> None:
    """Checks that the job is done, and that each trial was made once, successfully."""
    assert there.wait(job).state == "done"
    check_records(there, job, TRIALS)
    assert not [record for record in there.records(job) if record.failure is not None]
    open_steps = [span for span in there.spans() if span.job == job and not span.outcome]
    assert not open_steps


def test_the_end_of_a_helper_costs_only_its_steps(there: Lab, lender: Lender) -> None:
    job, host = helped(there, lender)

    done = 0

    def killed() -> bool:
        """Kills the helper after each progress, until the kill hits it at work."""
        nonlocal done
        if (now := stages_on(there, job, host).total()) >= done + 3:
            done = now
            for pid in processes(where(there, lender, host)):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        return any(span.outcome == "failed" for span in there.spans())

    until(killed, "its client ends its steps")
    until(lambda: processes(where(there, lender, host)), "another helper goes on there")
    assert not [span for span in there.spans() if span.outcome == "lost"], "the same client went on"
    lender.send(signal.SIGTERM)
    assert lender.gone() == 0
    assert not lender.clients()
    until(lambda: lender.is_("left"), "the host has left")
    lender.start()
    until(lambda: lender.is_("here"), "the host is back")
    ends_well(there, job)
    assert {stage for stage, count in stages_on(there, job, host).items() if count > 5} == {"build", "profile"}
    assert {record.unit for record in there.records(job)} == {"board", "board@lab2"}
    until(lambda: not lender.clients(), "helpers end with their client")
    until(lambda: not any((there.folder / "moved").glob("*/*")), "moved files go with the client")


def test_helpers_end_with_their_client_and_go_on_with_the_next_daemon(there: Lab, lender: Lender) -> None:
    job, host = helped(there, lender)
    before = processes(where(there, lender, host))
    for pid in processes(where(there, lender, "" if host else "lab2")):
        os.kill(pid, signal.SIGKILL)
    until(lambda: not set(before) & set(processes(where(there, lender, host))), "its helper ends")
    until(
        lambda: processes(where(there, lender, "lab2")) and processes(where(there, lender, "")),
        "the next client has a helper",
    )
    for how in (signal.SIGKILL, signal.SIGTERM):
        there.end(how)
        there.start(SETTINGS)
        until(lambda: lender.is_("here"), "the host is here")
    ends_well(there, job)


def test_a_frozen_host_is_given_up_under_a_job_with_a_helper(there: Lab, lender: Lender) -> None:
    job, _ = helped(there, lender)
    lender.send(signal.SIGSTOP)
    until(lambda: not lender.clients(), "its clients end")
    until(lambda: lender.is_("left"), "the host has left")
    ends_well(there, job)
