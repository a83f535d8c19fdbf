"""`python -m autosched.sim --seeds 1000`: random worlds with faults, every invariant checked after every event.

`--seed N --print` prints one of them event by event, to debug a failed simulation.
"""

import argparse
import hashlib
import sys
from collections import Counter
from collections.abc import Sequence
from functools import partial

from autosched.model import Goal
from autosched.sim.parallel import each
from autosched.sim.random_testing import EXCLUSIVE, attempt

CHUNK = 50
"""Seeds that one process runs before it reports."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the seeds; returns 1 if one of them failed."""
    parser = argparse.ArgumentParser(prog="python -m autosched.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds to try (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default: %(default)s)")
    parser.add_argument("--policy", choices=list(EXCLUSIVE), help="default: each seed has its own policy and goal")
    parser.add_argument("--goal", choices=[goal.value for goal in Goal], default=Goal.BALANCED.value)
    parser.add_argument("--processes", type=int, default=1, help="try seeds side by side (default: %(default)s)")
    parser.add_argument("--print", action="store_true", help="show --seed event by event")
    parser.add_argument("--hosts", action="store_true", help="with further hosts, which come and go")
    options = parser.parse_args(arguments)
    seeds = range(options.seed, options.seed + (1 if options.print else options.seeds))
    chunks = [seeds[start : start + CHUNK] for start in range(0, len(seeds), CHUNK)]
    turn = (options.policy, Goal(options.goal)) if options.policy else None
    work = partial(attempt, turn=turn, show=options.print, hosts=options.hosts)
    digest, events, states = hashlib.sha256(), 0, Counter[str]()
    for tried in each(work, chunks, options.processes):
        if tried.failed is not None:
            policy, goal = tried.turn
            again = f"python -m autosched.sim --policy {policy} --goal {goal} --seed {tried.failed} --print"
            again += " --hosts" if options.hosts else ""
            sys.stdout.write(f"seed {tried.failed}: {tried.problem}\n  see it: {again}\n")
            return 1
        digest.update(tried.digest)
        events += tried.events
        states.update(tried.states)
    ends = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
    sys.stdout.write(f"{events} events, jobs: {ends}; sha256 of all decisions {digest.hexdigest()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
