"""Generated loads: their distributions, and that the seed determines them."""

import itertools
from math import log
from statistics import fmean, pstdev

import pytest

from autosched.errors import RequestError
from autosched.workloads.bounds import device_work_s, host_work_s
from autosched.workloads.generator import generate, parse
from autosched.workloads.instances import Instance


def column(instance: Instance, stage: int) -> list[float]:
    return [iteration[stage] for job in instance.jobs for iteration in job.iterations]


def test_equal_jobs_are_those_of_the_thesis() -> None:
    one = generate(parse("hom:4-2-1"))
    assert {job.iterations for job in one.jobs} == {((8.3, 39.5, 44.0),) * 10}
    assert [job.host for job in one.jobs] == [0, 1, 0, 1]
    assert (one.name, one.hosts, one.devices) == ("hom-N4-C2-M1-s1", 2, 1)


@pytest.mark.parametrize(("kind", "spread"), [("noisy", 0.1), ("het", (0.5**2 + 0.2**2) ** 0.5)])
def test_steps_keep_their_mean_and_spread(kind: str, spread: float) -> None:
    one = generate(parse(f"{kind}:2000-10-10"))
    for stage, mean in enumerate((8.3, 39.5, 44.0)):
        seconds = column(one, stage)
        assert fmean(seconds) == pytest.approx(mean, rel=0.05)
        assert pstdev([log(s) for s in seconds]) == pytest.approx(spread, rel=0.08)


def test_iterations_are_as_many_as_the_kind_says() -> None:
    assert {len(job.iterations) for job in generate(parse("noisy:50-1-1")).jobs} == {10}
    assert {len(job.iterations) for job in generate(parse("het:500-1-1")).jobs} == set(range(5, 16))
    heavy = [len(job.iterations) for job in generate(parse("heavy:2000-1-1")).jobs]
    assert (min(heavy), max(heavy)) == (2, 40)
    assert fmean(heavy) == pytest.approx(9.6, abs=0.6)
    assert fmean(len(job.iterations) for job in generate(parse("het:50-1-1", longer=5)).jobs) == pytest.approx(50, 0.15)


def test_a_quarter_of_heavy_updates_is_short() -> None:
    def short(job_updates: list[float]) -> float:
        middle = sorted(job_updates)[len(job_updates) // 2]
        return sum(seconds < 0.25 * middle for seconds in job_updates) / len(job_updates)

    jobs = [job for job in generate(parse("heavy:1000-1-1")).jobs if len(job.iterations) >= 10]
    assert fmean(short([u for _, _, u in job.iterations]) for job in jobs) == pytest.approx(0.25, abs=0.04)


def test_times_are_tenths_of_a_second_and_never_nothing() -> None:
    seconds = [s for stage in range(3) for s in column(generate(parse("heavy:500-5-5")), stage)]
    assert min(seconds) >= 0.1
    assert all(round(s, 1) == s for s in seconds)


def test_equal_seeds_give_equal_loads_and_others_others() -> None:
    first, same, other = (generate(parse(text)) for text in ("het:8-2-1:3", "het:8-2-1:3", "het:8-2-1:4"))
    assert first == same
    assert first.jobs != other.jobs


@pytest.mark.parametrize("load", [0.7, 0.9])
@pytest.mark.parametrize("shape", ["1-1", "2-1", "4-3"])
def test_arrivals_keep_the_bottleneck_as_busy_as_asked(load: float, shape: str) -> None:
    one = generate(parse(f"het:{shape}", jobs=2000, load=load))
    arrivals = [job.arrival_s for job in one.jobs]
    assert arrivals == sorted(arrivals)
    busy = max(sum(map(host_work_s, one.jobs)) / one.hosts, sum(map(device_work_s, one.jobs)) / one.devices)
    assert busy / arrivals[-1] == pytest.approx(load, rel=0.08)
    gaps = [later - earlier for earlier, later in itertools.pairwise(arrivals)]
    assert pstdev(gaps) == pytest.approx(fmean(gaps), rel=0.1), "the gaps of a Poisson stream spread like their mean"


def test_a_load_changes_arrivals_only() -> None:
    at_once, one_by_one = generate(parse("het:8-2-1")), generate(parse("het:8-2-1", load=0.5))
    assert [job.iterations for job in at_once.jobs] == [job.iterations for job in one_by_one.jobs]


@pytest.mark.parametrize(
    "text", ["", "het", "het:8", "het:8-2", "odd:8-2-1", "het:8-2-1:x", "het:0-1-1", "het:1-1-1001"]
)
def test_what_cannot_be_generated_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match=repr(text)):
        parse(text)


def test_the_number_of_jobs_may_be_said_apart() -> None:
    assert parse("het:2-1", jobs=400).jobs == 400
    assert parse("het:8-2-1:7", jobs=400) == parse("het:2-1:7", jobs=400)
