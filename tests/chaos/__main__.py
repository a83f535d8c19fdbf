"""The fault matrix against a real daemon with 50 clients: `make chaos`, or `python -m chaos` with tests/ on the path.

Prints one JSON object with a part for each of PARTS; their ``violations`` must be empty. ``--keep FOLDER`` leaves logs
and databases there.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

from chaos import run

PARTS = {
    "kills": run.kills, "matrix": run.matrix, "makespan": run.makespan, "tvm": run.tvm, "records": run.records,
    "experiment": run.experiment, "hosts": run.hosts, "helpers": run.helpers,
}  # fmt: skip


def main() -> int:
    """Runs the parts and prints the result."""
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("parts", nargs="*", default=list(PARTS), metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--kills", type=int, default=1_000, help="of the daemon (default: %(default)s)")
    parser.add_argument("--clients", type=int, default=50, help="at once (default: %(default)s)")
    parser.add_argument("--brief", action="store_true", help="short steps, and little time between two kills")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="an empty folder to work in that stays")
    args = parser.parse_args()
    plan = run.Plan(args.kills, args.clients, 10.0, run.BRIEF) if args.brief else run.Plan(args.kills, args.clients)
    told: dict[str, Any] = {"clients": plan.clients}
    with tempfile.TemporaryDirectory(prefix="autosched-chaos-") as temporary:
        for part in args.parts:
            folder = (args.keep or Path(temporary)) / part
            folder.mkdir()
            told[part] = asyncio.run(PARTS[part](folder, plan, random.Random(args.seed)))
            told[part]["missed"] = run.missed(told[part])
            sys.stderr.write(f"{part}: {json.dumps(told[part])}\n")  # a full run takes hours, and may be interrupted
    sys.stdout.write(json.dumps(told, indent=1) + "\n")
    return any(told[part]["violations"] for part in args.parts)


if __name__ == "__main__":
    sys.exit(main())
