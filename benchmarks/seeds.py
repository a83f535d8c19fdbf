"""``python benchmarks/seeds.py --seeds 200000 [--processes 2]`` simulates worlds with faults, new ones each time.

It continues after the last seed in benchmarks/results/seeds.json, and stores the result there after each 5,000: it may
be stopped at any time. It ends with the first seed that fails, which is not stored. On a compiled core (compiled.py) it
takes half the time. ``python benchmarks/run.py --page-only`` writes the page.
"""

import argparse
import json
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from raw_results import origin

from autosched.core import scheduler
from autosched.sim.parallel import each
from autosched.sim.random_testing import attempt

KEPT = Path(__file__).parent / "results" / "seeds.json"
CHUNK, SAVED = 50, 5_000
"""Number of seeds between two reports of a process, and between two writes."""


def main() -> int:
    """Continues; returns 1 if a seed failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=100_000, help="how many (default: %(default)s)")
    parser.add_argument("--processes", type=int, default=1, help="side by side (default: %(default)s)")
    args = parser.parse_args()
    told: dict[str, Any] = json.loads(KEPT.read_text()) if KEPT.exists() else {"parts": []}
    parts = told["parts"]
    first = max((part["first"] + part["seeds"] for part in parts), default=0)
    commit, date = (origin()[name] for name in ("commit", "date"))
    for start in range(first, first + args.seeds, SAVED):
        began_at, events, states = time.monotonic(), 0, Counter[str]()
        seeds = range(start, min(start + SAVED, first + args.seeds))
        chunks = [seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK)]
        for tried in each(partial(attempt, turn=None), chunks, args.processes):
            if tried.failed is not None:
                print(f"seed {tried.failed}: {tried.problem}")
                return 1
            events += tried.events
            states.update(tried.states)
        print(f"{seeds[0]} to {seeds[-1]}: {events} events in {time.monotonic() - began_at:.0f} s", flush=True)
        made = {"commit": commit, "date": date, "compiled": not scheduler.__file__.endswith(".py")}
        add(parts, {**made, "first": start, "seeds": len(seeds), "events": events, "jobs": states.total()})
        KEPT.write_text(json.dumps(told, indent=1) + "\n")
    return 0


def add(parts: list[dict[str, Any]], new: dict[str, Any]) -> None:
    """Adds the part to the last one, if it is of the same code and follows it."""
    last = parts[-1] if parts else {}
    same = all(last.get(name) == new[name] for name in ("commit", "compiled"))
    if same and last["first"] + last["seeds"] == new["first"]:
        last.update({name: last[name] + new[name] for name in ("seeds", "events", "jobs")})
    else:
        parts.append(new)


if __name__ == "__main__":
    sys.exit(main())
