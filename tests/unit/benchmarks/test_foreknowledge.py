"""Who is told the truth early is told it after one step, and no sooner."""

import pytest
from foreknowledge import Foreknowing, played, summary, true_means

from autosched.sim.workload_scenarios import instance_scenario
from autosched.workloads.instances import Instance, InstanceJob

LOAD = Instance(
    name="two-N2-s1",
    hosts=1,
    devices=1,
    best_known_s=10.0,
    jobs=tuple(InstanceJob(host=0, iterations=((1.0, 2.0, 3.0), (3.0, 2.0, 1.0))) for _ in range(2)),
)


def test_the_means_are_those_of_the_load() -> None:
    means = true_means(instance_scenario(LOAD))
    assert {stage: means[1, stage] for stage in ("build", "profile", "update")} == {
        "build": 2.0,
        "profile": 2.0,
        "update": 2.0,
    }


def test_the_truth_is_told_once_a_step_has_ended() -> None:
    early = Foreknowing(early=True, means={(1, "build"): 2.0, (2, "build"): 7.0})
    assert early.of_job(1, "build")[0] is None
    early.learn(1, 0, "build", 1, 5.0)
    assert early.of_job(1, "build")[0] == 2.0
    assert early.of_job(2, "build")[0] == 5.0, "of another job it says what anybody would"
    assert Foreknowing(means=early.means).of_job(2, "build")[0] == 7.0


@pytest.mark.parametrize("knowing", ["learned", "early", "told"])
def test_every_way_of_knowing_comes_to_an_end(knowing: str) -> None:
    found = played(LOAD, knowing, 1.0)
    told = summary([LOAD], [found], [(2 * found[0], 4 * found[1])])
    assert told["all"] == told["by_kind"] == [round(found[0] / 10.0, 4), 0.25, 0.5]
