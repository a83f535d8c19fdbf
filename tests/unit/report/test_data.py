import pytest
from msgspec.structs import replace

from autosched import report
from autosched.model import Purpose, Record
from autosched.network_status import MeasuredBuild
from autosched.protocol import Span
from samples import evaluation, job_view, records, spans


def test_records_are_placed_in_the_profile_steps_of_their_task() -> None:
    """4 trials of equal length in two steps of 2 s: they end at 21, 22, 31 and 32 s; the third is the best."""
    curves = report.gather(job_view(), None, records(), spans()).task_curves
    assert [(p.at_s, p.best_s) for p in curves["1"]] == [
        (pytest.approx(21, abs=0.01), 1.2e-3),
        (pytest.approx(31, abs=0.01), 0.4e-3),
    ]
    assert [(p.at_s, p.best_s) for p in curves["2"]] == [(pytest.approx(42, abs=0.01), 1e-3)]


def test_the_estimate_begins_when_every_task_has_a_valid_record() -> None:
    (estimate,) = report.gather(job_view(), None, records(), spans()).estimates
    assert estimate.at_s == pytest.approx(42, abs=0.01)
    assert estimate.best_s == pytest.approx(2 * 0.4e-3 + 4 * 1e-3)
    assert report.gather(job_view(), None, records()[:3], spans()).estimates == ()


def test_of_tasks_that_compete_the_estimate_counts_the_best() -> None:
    view = job_view()
    rivals = replace(view, tasks=tuple(replace(task, weight=2, groups={"g": 2}) for task in view.tasks))
    points = report.gather(rivals, None, records(), spans()).estimates
    assert [point.best_s for point in points] == [pytest.approx(2 * best) for best in (1.2e-3, 0.4e-3, 0.4e-3)]


def test_the_estimate_begins_with_the_first_measured_build_and_follows_each() -> None:
    """Step 8 measures a build before the search: 15 ms outside of the tasks, which take 3 and 5 ms without a search."""
    view = job_view()
    tasks = tuple(replace(task, untuned_s=untuned_s) for task, untuned_s in zip(view.tasks, (3e-3, 5e-3), strict=True))
    builds = (MeasuredBuild(8, 41e-3, 1.0, 15e-3), MeasuredBuild(9, 30e-3, 1.0, 15e-3, disturbed=True))
    builds = (*builds, MeasuredBuild(10, 6e-3, 1.0, 1.2e-3), MeasuredBuild(99, 5e-3))
    steps = [Span(8, 7, 0, "evaluate", ("cpu0",), 1010.0, 1010.0, 1015.0, "done")]
    steps += [Span(9, 7, 0, "evaluate", ("cpu0",), 1010.0, 1050.0, 1055.0, "done")]
    steps += [Span(10, 7, 0, "evaluate", ("cpu0",), 1010.0, 1060.0, 1065.0, "done")]
    made = report.gather(replace(view, tasks=tasks, builds=builds), None, records(), [*spans(), *steps])
    assert [(point.at_s, point.latency_s, point.disturbed) for point in made.builds] == [
        (15.0, 41e-3, False), (55.0, 30e-3, True), (65.0, 6e-3, False)
    ], "one whose step the daemon forgot has no place"  # fmt: skip
    assert [(round(point.at_s), point.best_s) for point in made.estimates] == [
        (15, pytest.approx(15e-3 + 2 * 3e-3 + 4 * 5e-3)),
        (21, pytest.approx(15e-3 + 2 * 1.2e-3 + 4 * 5e-3)),
        (31, pytest.approx(15e-3 + 2 * 0.4e-3 + 4 * 5e-3)),
        (42, pytest.approx(15e-3 + 2 * 0.4e-3 + 4 * 1e-3)),
        (55, pytest.approx(15e-3 + 2 * 0.4e-3 + 4 * 1e-3)),
        (65, pytest.approx(1.2e-3 + 2 * 0.4e-3 + 4 * 1e-3)),
    ]


def test_a_disturbed_build_does_not_begin_the_estimate() -> None:
    view = job_view()
    tasks = tuple(replace(task, untuned_s=3e-3) for task in view.tasks)
    builds = (MeasuredBuild(8, 41e-3, disturbed=True),)
    step = Span(8, 7, 0, "evaluate", ("cpu0",), 1010.0, 1010.0, 1015.0, "done")
    made = report.gather(replace(view, tasks=tasks, builds=builds), None, records(), [*spans(), step])
    assert [round(point.at_s) for point in made.estimates] == [42]


def test_steps_of_the_jobs_time_are_kept_and_count_from_its_start() -> None:
    kept = report.gather(job_view(), None, [], spans()).spans
    assert [span.step for span in kept] == [2, 3, 4, 5, 6, 7]
    assert (kept[0].started_at, kept[0].ended_at) == (0.0, 10.0)
    assert kept[-1].ended_at == 100.0, "a running step lasts until now"


def test_without_steps_records_are_spread_over_the_jobs_time() -> None:
    curves = report.gather(job_view(), None, records(), []).task_curves
    assert [p.at_s for p in curves["1"]] == [pytest.approx(25, abs=0.1), pytest.approx(75, abs=0.1)]


def test_a_step_without_length_is_no_trouble() -> None:
    instant = [Span(3, 7, 1, "profile", ("cpu0",), 1010.0, 1020.0, 1020.0, "done")]
    assert [p.at_s for p in report.gather(job_view(), None, records(), instant).task_curves["1"]] == [20.0, 20.0]


def test_failures_are_grouped_with_different_examples() -> None:
    (group,) = report.gather(job_view(), None, records(), []).failures
    assert (group.reason, group.count, len(group.examples)) == ("build timeout", 2, 2)


def test_tasks_come_by_their_share_and_those_without_a_record_last() -> None:
    view = job_view()
    unknown = replace(view.tasks[0], task=3, best_s=None)
    gathered = report.gather(replace(view, tasks=(unknown, *view.tasks)), evaluation(), [], [])
    assert [task.task for task, _ in gathered.tasks_by_share] == [2, 1, 3]
    assert [part for _, part in gathered.tasks_by_share] == [pytest.approx(4 / 4.8), pytest.approx(0.8 / 4.8), None]


def test_finals_say_what_they_changed() -> None:
    search = [record for record in records() if record.task == 1]
    measured = [(b"c2", Purpose.FINAL, 0.5e-3), (b"d", Purpose.FINAL, 0.45e-3), (b"", Purpose.DEFAULT, 0.9e-3)]
    held = [
        Record(task=1, number=10 + i, candidate=candidate, latency_s=(s,), purpose=purpose)
        for i, (candidate, purpose, s) in enumerate(measured)
    ]
    gathered = report.gather(job_view(), None, [*search, *held], spans(), {"cpu0": "steady"})
    (final,) = gathered.finals
    assert (final.name, final.candidates, final.best_s, final.default_s) == ("conv2", 3, 0.45e-3, 0.9e-3)
    assert (final.winner, gathered.health) == ("another", {"cpu0": "steady"})
    assert [point.best_s for point in gathered.task_curves["1"]] == [1.2e-3, 0.4e-3, 0.5e-3, 0.45e-3], (
        "it ends at the result"
    )
    faster = replace(held[2], latency_s=(0.1e-3,))
    (final,) = report.gather(job_view(), None, [*search, *held[:2], faster], spans()).finals
    assert final.winner == "default"


def test_twice_the_trials_are_expected_to_gain_what_the_second_half_did() -> None:
    """Estimates of 4 calls of task 2 and 2 of task 1: 6.4 ms at half, 5.6 ms at the end."""
    measured = [(1, 1.2e-3), (2, 1.0e-3), (1, 0.8e-3), (2, 2.0e-3)]
    made = [Record(task=t, number=i, candidate=bytes([i]), latency_s=(s,)) for i, (t, s) in enumerate(measured)]
    gathered = report.gather(job_view(), None, made, spans())
    assert gathered.expected_gain == pytest.approx(6.4 / 5.6)
    assert report.gather(job_view(), None, made[:2], spans()).expected_gain is None, "no estimate at half"
