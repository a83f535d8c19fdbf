"""Several devices share the measurements of one task; nothing is lost when one of them fails."""

import signal
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from autosched.model import JobId
from autosched.protocol import Span
from deadlines import until
from integration.lab import Lab, lab
from integration.lender import SETTINGS, check_records, hosts_of, lent
from lent_host import boards

TRIALS = 48
TWO = f"{SETTINGS}{boards(1).replace('board', 'second')}"
"""Settings of a daemon with two equal devices."""
MEASURES = {"trials": TRIALS, "tasks": 1, "profile_s": 2.0, "divisible": True}
"""Fields and options of a job of one task whose rounds of 8 candidates take one device two seconds."""


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Lab]:
    with lab(tmp_path, TWO) as made:
        yield made


def together(there: Lab, job: JobId) -> dict[int, list[Span]]:
    """Returns steps of the job that measured while another one did."""
    own = sorted((s for s in there.spans() if s.job == job and s.stage == "profile"), key=lambda span: span.started_at)
    found = defaultdict[int, list[Span]](list)
    for first in own:
        for other in own:
            if first.step < other.step and first.ended_at is not None and other.started_at < first.ended_at:
                found[first.step].append(other)
    return found


def shares(there: Lab, job: JobId) -> Counter[str]:
    """Returns the number of candidates that each device has measured."""
    return Counter(record.unit for record in there.records(job) if record.purpose.value == "trial")


def test_two_devices_share_each_round(there: Lab) -> None:
    job = there.submit(**MEASURES)
    assert there.wait(job).state == "done"
    check_records(there, job, TRIALS)
    measured = shares(there, job)
    assert len(measured) == 2, measured
    assert min(measured.values()) >= TRIALS / 4, measured
    both = together(there, job)
    assert len(both) >= 3
    for number, others in both.items():
        first = next(span for span in there.spans() if span.step == number)
        assert {(one.task, one.stage) for one in others} == {(first.task, "profile")}
        assert all(one.units != first.units for one in others)


def test_candidates_of_a_failed_step_are_measured_by_the_others(there: Lab) -> None:
    job = there.submit(**{**MEASURES, "step_fail_ratio": 0.1, "trials": 120, "tasks": 12, "profile_s": 1.2})
    view = there.wait(job)
    assert view.state == "done"
    numbers = [record.number for record in there.records(job)]
    assert len(numbers) == len(set(numbers))
    own = [span for span in there.spans() if span.job == job]
    assert {span.outcome for span in own} == {"done", "failed"}
    assert together(there, job)


def test_rounds_are_still_shared_after_the_daemon_and_the_client_died(there: Lab) -> None:
    job = there.submit(**{**MEASURES, "trials": 96})
    there.wait(job, "trials", 8)
    until(lambda: together(there, job), "two devices measure")
    there.end(signal.SIGKILL)
    there.start(TWO)
    there.wait(job, "trials", 24)
    there.kill_client(job)
    assert there.wait(job).state == "done"
    check_records(there, job, 96)
    assert len(shares(there, job)) == 2


def test_a_device_of_another_host_takes_a_share(tmp_path: Path) -> None:
    with lab(tmp_path, SETTINGS) as there, lent(there):
        job = there.submit(**{**MEASURES, "trials": 160, "movable": True})
        until(lambda: hosts_of(there, job) == {"", "lab2"}, "a helper measures")
        until(lambda: len(shares(there, job)) == 2, "it has a share")
        assert there.wait(job).state == "done"
        check_records(there, job, 160)
        assert together(there, job)
