"""Estimates of stage times: their priors, their adaptation, and their quantiles."""

import math
from collections.abc import Callable
from random import Random

import pytest

from autosched.core.estimates import RATIOS, RATIOS_MIN, Estimates
from autosched.model import StageHistory

BUILD = "build"


def learned(*seconds: float, job: int = 1, task: int = 1, into: Estimates | None = None) -> Estimates:
    estimates = Estimates() if into is None else into
    for each in seconds:
        estimates.learn(job, task, BUILD, 0, each)
    return estimates


# Shrinkage: the nearest knowledge counts, and the next more general as little more than one observation ---------------


def test_without_any_observation_there_is_no_estimate() -> None:
    assert Estimates().of_job(1, BUILD) == (None, 0.0)
    assert Estimates().of_task(1, 1, BUILD) is None


def test_the_clients_estimate_counts_while_nothing_was_measured() -> None:
    assert Estimates().of_task(1, 1, BUILD, claim_s=7.0) == 7.0
    assert learned(3.0).of_task(2, 1, BUILD, claim_s=7.0) == 3.0


def test_a_new_job_is_expected_to_be_like_the_others() -> None:
    estimates = learned(2.0, 4.0)
    assert estimates.of_job(2, BUILD) == (3.0, 0.0)
    assert estimates.of_task(2, 5, BUILD) == 3.0
    assert estimates.of_job(2, "profile") == (None, 0.0)


@pytest.mark.parametrize("count", [1, 3, 10, 25])
def test_own_times_of_a_task_replace_those_of_others(count: int) -> None:
    estimates = learned(*[10.0] * 5, task=1)
    for _ in range(count):
        estimates.learn(1, 2, BUILD, 0, 2.0)
    job_s, _ = estimates.of_job(1, BUILD)
    task_s = estimates.of_task(1, 2, BUILD)
    assert job_s is not None
    assert task_s is not None
    assert 2.0 < task_s < job_s
    assert task_s - 2.0 == pytest.approx((job_s - 2.0) / (count + 1))


def test_an_unmeasured_task_has_the_estimate_of_its_job() -> None:
    estimates = learned(*[10.0] * 30, job=1)
    learned(2.0, 2.0, job=2, into=estimates)
    own_s, count = estimates.of_job(2, BUILD)
    assert own_s is not None
    assert 2.0 < own_s < 10.0
    assert count == 2.0
    assert estimates.of_task(2, 99, BUILD) == own_s


# History ------------------------------------------------------------------------------------------------------------


def test_history_precedes_all_but_the_tasks_own_times() -> None:
    estimates = learned(*[10.0] * 10, job=1)
    estimates.recall(2, (StageHistory(1, BUILD, 3.0, 50), StageHistory(2, BUILD, 5.0, 1)))
    assert estimates.of_task(2, 1, BUILD) == 3.0
    assert estimates.of_task(2, 2, BUILD) == 5.0
    learned(1.0, job=2, task=1, into=estimates)
    assert estimates.of_task(2, 1, BUILD) == pytest.approx(2.0), "one observation of its own against one of history"


def test_history_of_some_tasks_applies_to_the_whole_job() -> None:
    estimates = learned(*[10.0] * 10, job=1)
    estimates.recall(2, (StageHistory(1, BUILD, 3.0, 50), StageHistory(2, BUILD, 5.0, 1)))
    assert estimates.of_job(2, BUILD) == (4.0, 1.0)
    assert estimates.of_task(2, 9, BUILD) == 4.0


# Fading and forgetting --------------------------------------------------------------------------------------------


def test_old_times_fade() -> None:
    estimates = learned(*[1.0] * 1_000, *[3.0] * 100)
    assert estimates.of_task(1, 1, BUILD) == pytest.approx(3.0, rel=0.05), "a mean of all would still say 1.2"


def test_few_times_are_averaged_equally() -> None:
    assert learned(1.0, 2.0, 6.0).of_job(2, BUILD)[0] == pytest.approx(3.0)


def test_an_ended_job_leaves_only_its_share_of_the_stage_estimate() -> None:
    estimates = learned(4.0, 4.0)
    estimates.recall(1, (StageHistory(1, BUILD, 9.0, 5),))
    estimates.forget(1)
    assert estimates.jobs == {}
    assert estimates.of_task(1, 1, BUILD) == 4.0
    estimates.forget(1)


# Typical ones -------------------------------------------------------------------------------------------------------


def test_an_outlier_hardly_moves_the_typical_estimate_but_the_mean() -> None:
    estimates = learned(*[1.0] * 9)
    learned(1_000.0, job=2, into=estimates)
    assert estimates.of_job(3, BUILD) == (pytest.approx(100.9), 0.0)
    assert estimates.of_job(3, BUILD, typical=True) == (pytest.approx(1_000 ** (1 / 10)), 0.0)


@pytest.mark.parametrize("own_s", [0.01, 100.0])
def test_a_typical_estimate_stands_in_the_geometric_middle_of_the_prior_and_the_first_time(own_s: float) -> None:
    estimates = learned(*[1.0] * 29)
    learned(own_s, job=2, into=estimates)
    prior_s, _ = estimates.of_job(3, BUILD, typical=True)
    assert prior_s is not None
    assert estimates.of_job(2, BUILD, typical=True)[0] == pytest.approx(math.sqrt(prior_s * own_s))


def test_steps_without_duration_are_estimates_too() -> None:
    assert learned(0.0, 0.0).of_job(1, BUILD, typical=True)[0] == 0.0


# Quantiles ----------------------------------------------------------------------------------------------------------


def lognormal(rng: Random) -> float:
    return math.exp(rng.gauss(0.0, 0.8))


def bimodal(rng: Random) -> float:
    return rng.gauss(1.0, 0.05) if rng.random() < 0.8 else rng.gauss(9.0, 0.3)


def constant(_: Random) -> float:
    return 2.0


def lived(draw: Callable[[Random], float], seed: int, steps: int = 2_000) -> Estimates:
    """Returns the estimates after one task's steps, as the scheduler would record them."""
    rng, estimates = Random(seed), Estimates()
    for step in range(1, steps + 1):
        estimates.begin(step, estimates.of_task(1, 1, BUILD, 1.0), BUILD, sure=True)
        estimates.learn(1, 1, BUILD, step, draw(rng))
    return estimates


@pytest.mark.parametrize("draw", [lognormal, bimodal])
@pytest.mark.parametrize("seed", range(3))
def test_ninety_percent_of_steps_stay_below_their_ninety_percent_quantile(
    draw: Callable[[Random], float], seed: int
) -> None:
    coverage = lived(draw, seed).calibration().coverage_p90
    assert coverage == pytest.approx(0.9, abs=0.03)


def test_steps_of_constant_duration_have_narrow_quantiles() -> None:
    estimates = lived(constant, 0)
    assert estimates.quantile_s(2.0, BUILD, 0.99) == pytest.approx(2.0, rel=0.02)
    assert estimates.calibration().coverage_p90 == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("draw", [lognormal, bimodal])
def test_quantiles_grow_with_their_share_and_with_the_estimate(draw: Callable[[Random], float]) -> None:
    estimates = lived(draw, 1)
    quantiles = [estimates.quantile_s(1.0, BUILD, share) for share in (0.1, 0.5, 0.9, 0.99)]
    assert quantiles == sorted(quantiles, key=lambda value: value or 0.0)
    assert quantiles[0] != quantiles[-1]
    assert estimates.quantile_s(3.0, BUILD, 0.9) == pytest.approx(3.0 * (quantiles[2] or 0.0))


def test_few_steps_give_no_extreme_quantile() -> None:
    assert lived(lognormal, 0, RATIOS_MIN - 1).quantile_s(1.0, BUILD, 0.9) is None
    assert lived(lognormal, 0, RATIOS_MIN).quantile_s(1.0, BUILD, 0.9) is not None
    assert lived(lognormal, 0).quantile_s(1.0, "profile", 0.9) is None


def test_quantiles_come_from_the_latest_steps_alone() -> None:
    ratios = lived(lognormal, 5).ratios[BUILD]
    assert len(ratios.recent) == RATIOS
    assert ratios.ordered == sorted(ratios.recent)


# Calibration --------------------------------------------------------------------------------------------------------


def test_without_estimates_there_is_no_calibration() -> None:
    assert learned(1.0).calibration() == Estimates().calibration()
    assert (Estimates().calibration().steps, Estimates().calibration().mape) == (0, None)
    assert Estimates().calibration().coverage_p90 is None


def test_the_mean_error_is_relative_to_what_was_measured() -> None:
    estimates = Estimates()
    for step, (expected_s, took_s) in enumerate([(2.0, 4.0), (3.0, 2.0), (5.0, 5.0)], start=1):
        estimates.begin(step, expected_s, BUILD, sure=True)
        estimates.learn(1, 1, BUILD, step, took_s)
    assert estimates.calibration().steps == 3
    assert estimates.calibration().mape == pytest.approx((0.5 + 0.5 + 0.0) / 3)


def test_a_killed_step_is_not_counted() -> None:
    estimates = Estimates()
    estimates.begin(1, 2.0, BUILD, sure=True)
    estimates.drop(1)
    estimates.drop(1)
    assert estimates.forecasts == {}
    assert estimates.calibration().steps == 0
    assert estimates.of_job(1, BUILD) == (None, 0.0)


# Are they so wrong that they must not be followed? --------------------------------------------------------------------


def judged(*errors: float, jobs: int = 10, sure: bool = True, noise: float = 0.0) -> Estimates:
    """Returns estimates of jobs whose builds take a multiple of the expected time, job by job in turn."""
    rng, estimates = Random(0), Estimates()
    for step in range(1, 20 * jobs + 1):
        job = step % jobs
        estimates.begin(step, 5.0, BUILD, sure=sure)
        estimates.learn(job, 1, BUILD, step, 5.0 * errors[job % len(errors)] * math.exp(rng.gauss(0.0, noise)))
    return estimates


@pytest.mark.parametrize("errors", [(3.0,), (1 / 3,), (4.0, 1 / 4)])
def test_estimates_that_are_off_by_factors_are_wrong(errors: tuple[float, ...]) -> None:
    assert judged(*errors).are_wrong(), "mistakes in both directions do not make up for each other"


@pytest.mark.parametrize("errors", [(1.0,), (1.2, 0.8)])
@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_noise_does_not_make_estimates_wrong(errors: tuple[float, ...], noise: float) -> None:
    assert not judged(*errors, noise=noise).are_wrong()


def test_guesses_and_a_single_job_do_not_prove_estimates_wrong() -> None:
    assert not judged(9.0, sure=False).are_wrong()
    assert not judged(9.0, jobs=2).are_wrong()


def test_errors_of_ended_jobs_are_not_counted_against_others() -> None:
    estimates = judged(9.0)
    for job in range(10):
        estimates.forget(job)
    assert (estimates.pairs, estimates.error_total) == (0, pytest.approx(0.0))
    assert not estimates.are_wrong()


def test_estimates_of_other_jobs_are_judged_separately() -> None:
    estimates = judged(9.0)
    estimates.start_again()
    assert not estimates.are_wrong()
    estimates.forget(1)
    assert estimates.pairs == 0


def test_wrong_estimates_are_doubted_until_no_job_is_left() -> None:
    estimates = judged(9.0)
    assert not estimates.doubted
    estimates.start_again()
    for job in range(10):
        assert estimates.doubted
        estimates.forget(job)
    assert not estimates.doubted


@pytest.mark.parametrize(("own_s", "share"), [(64.0, 1 / 1.2), (1 / 64.0, 1 / 2)])
def test_doubted_estimates_rise_at_once_and_fall_slowly(own_s: float, share: float) -> None:
    estimates = learned(*[1.0] * 29)
    learned(own_s, job=2, into=estimates)
    prior_s = estimates.of_job(3, BUILD, typical=True)[0] or 0.0
    assert estimates.of_job(2, BUILD, typical=True)[0] == pytest.approx(prior_s * (own_s / prior_s) ** 0.5)
    estimates.start_again()
    assert estimates.of_job(2, BUILD, typical=True)[0] == pytest.approx(prior_s * (own_s / prior_s) ** share)


def test_wrong_history_is_dropped() -> None:
    estimates = Estimates()
    estimates.recall(1, (StageHistory(1, BUILD, 9.0, 5),))
    assert estimates.told
    learned(1.0, into=estimates)
    assert estimates.of_task(1, 1, BUILD) == 5.0
    estimates.start_again()
    assert not estimates.told
    assert estimates.of_task(1, 1, BUILD) == 1.0
