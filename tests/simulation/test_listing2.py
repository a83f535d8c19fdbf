"""The event-driven core makes the decisions of the polling loop in the thesis."""

from random import Random

import pytest

from autosched.model import Pool, Unit
from autosched.sim.scenario import Scenario, ScenarioJob, Work
from autosched.sim.simulator import Simulator
from simulation.reference import listing_2


def random_load(seed: int) -> Scenario:
    """Returns single-task jobs on one to three resources of one or two units. Times are multiples of 0.5 s, with many
    ties."""
    rng = Random(f"listing 2/{seed}")
    names = ("host", "device:cpu", "device:gpu")[: rng.randint(1, 3)]
    pools = tuple(Pool(name, tuple(Unit(f"{name}.{i}") for i in range(rng.randint(1, 2)))) for name in names)

    def steps() -> tuple[Work, ...]:
        return tuple(Work(f"stage {i}", (rng.choice(names),), rng.randint(1, 6) / 2) for i in range(rng.randint(1, 12)))

    arrivals = sorted(rng.choice((0.0, 0.0, rng.randint(0, 20) / 2)) for _ in range(rng.randint(1, 9)))
    jobs = tuple(ScenarioJob(tasks=((steps(),),), arrives_at=at) for at in arrivals)
    return Scenario(pools=pools, jobs=jobs, seed=seed)


@pytest.mark.parametrize("chunk", range(10))
def test_the_core_starts_what_listing_2_starts(chunk: int) -> None:
    for seed in range(50 * chunk, 50 * chunk + 50):
        load = random_load(seed)
        starts: dict[str, list[tuple[float, int, str]]] = {pool.name: [] for pool in load.pools}
        for span in Simulator(load).run().spans:
            starts[span.units[0].rpartition(".")[0]].append((span.started_at, span.job, span.stage))
        assert starts == listing_2(load), f"seed {seed}"
