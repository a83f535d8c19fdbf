"""`python -m autosched.sim --seeds 1000`: random worlds with faults, every invariant checked after every event.

`--seed N --print` shows one of them event by event: that is how a failed simulation is looked into.
"""

import argparse
import hashlib
import sys
from collections import Counter
from collections.abc import Sequence

import msgspec

from autosched.core.policy import POLICIES, SYNCHRONOUS
from autosched.core.scheduler import Scheduler
from autosched.sim.scenario import random_scenario
from autosched.sim.world import World


def check(scheduler: Scheduler) -> None:
    """All invariants, after an event."""
    scheduler.state.check_all()


def finish(world: World) -> None:
    """Let a world happen to its end. AssertionError says what went wrong."""
    report = world.run()
    alive = [job for job in range(1, len(world.scenario.jobs) + 1) if job not in report.states]
    assert not alive, f"the faults have stopped, but jobs {alive} never ended"
    open_steps = [span.step for span in report.spans if span.ended_at is None]
    assert not open_steps, f"steps {open_steps} were started and never ended"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the seeds; 1 if one of them failed."""
    parser = argparse.ArgumentParser(prog="python -m autosched.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds to try (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default: %(default)s)")
    parser.add_argument("--policy", choices=sorted(POLICIES.keys() - {SYNCHRONOUS.name}), default="interleaved")
    parser.add_argument("--print", action="store_true", help="show --seed event by event")
    options = parser.parse_args(arguments)
    policy = POLICIES[options.policy]
    digest, events, states = hashlib.sha256(), 0, Counter[str]()
    for seed in range(options.seed, options.seed + (1 if options.print else options.seeds)):
        world, problem = World(random_scenario(seed), policy, check), ""
        try:
            finish(world)
        except AssertionError as error:
            problem = str(error)
        for entry in world.history:
            digest.update(msgspec.msgpack.encode(entry))
            if options.print:
                sys.stdout.write(f"{entry.now:9.3f} > {entry.event}\n")
                sys.stdout.writelines(f"          < {action}\n" for action in entry.actions)
        if problem:
            again = f"python -m autosched.sim --policy {policy.name} --seed {seed} --print"
            sys.stdout.write(f"seed {seed}: {problem}\n  see it: {again}\n")
            return 1
        events += len(world.history)
        states.update(state.value for state in world.ended.values())
    ends = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
    sys.stdout.write(f"{events} events, jobs: {ends}; sha256 of all decisions {digest.hexdigest()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
