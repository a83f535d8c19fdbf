"""Lower bounds of schedules: checked by hand on small instances, and against schedulers."""

import pytest

from autosched.core.policies.policy import INTERLEAVED, PREDICTIVE
from autosched.sim.simulator import Simulator
from autosched.sim.workload_scenarios import instance_scenario
from autosched.workloads.bounds import lower_bound_s
from autosched.workloads.generator import KINDS, generate, parse
from autosched.workloads.instances import Instance, InstanceJob

pytestmark = pytest.mark.slow


def instance(*jobs: tuple[int, float, tuple[tuple[float, float, float], ...]], devices: int = 1) -> Instance:
    hosts = 1 + max(host for host, _, _ in jobs)
    made = tuple(InstanceJob(host=host, arrival_s=at, iterations=steps) for host, at, steps in jobs)
    return Instance(name="hand-made", hosts=hosts, devices=devices, jobs=made)


def test_one_job_takes_its_own_time_from_its_arrival() -> None:
    assert lower_bound_s(instance((0, 5.0, ((1.0, 2.0, 3.0), (1.0, 2.0, 3.0))))) == 17.0


def test_the_busiest_host_decides() -> None:
    steps = ((5.0, 1.0, 5.0),)
    assert lower_bound_s(instance((0, 0.0, steps), (0, 0.0, steps), (1, 0.0, steps))) == 20.0


def test_the_device_waits_for_the_first_build_and_the_last_update() -> None:
    assert lower_bound_s(instance((0, 0.0, ((1.0, 20.0, 2.0),)), (1, 0.0, ((3.0, 30.0, 4.0),)))) == 1.0 + 50.0 + 2.0


def test_two_devices_share_the_work_and_each_waits_for_a_build_of_its_own() -> None:
    jobs = [(host, 0.0, ((1.0 + host, 10.0, 1.0),)) for host in range(4)]
    assert lower_bound_s(instance(*jobs, devices=2)) == pytest.approx((1 + 2 + 40 + 1 + 1) / 2)


def test_who_comes_late_cannot_be_done_early() -> None:
    late = ((10.0, 1.0, 10.0),)
    assert lower_bound_s(instance((0, 0.0, ((1.0, 1.0, 1.0),)), (0, 100.0, late), (0, 100.0, late))) == 140.0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", ["3-1-1", "5-3-2", "4-4-4", "1-1-3"])
def test_no_schedule_beats_the_bound(kind: str, shape: str) -> None:
    for seed in range(5):
        one = generate(parse(f"{kind}:{shape}:{seed}", load=0.8 if seed % 2 else None))
        for policy in (INTERLEAVED, PREDICTIVE):
            assert Simulator(instance_scenario(one), policy).run().makespan_s >= lower_bound_s(one) - 1e-6
