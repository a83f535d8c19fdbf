"""The fault matrix against a real daemon with 50 clients: ``make chaos``, or ``python -m chaos`` with tests/ on the path.

Prints one JSON object; ``violations`` must be empty. ``--keep FOLDER`` leaves logs and database there.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
from pathlib import Path

from chaos.run import Plan, kills


def main() -> int:
    """Run and tell."""
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=1_000, help="of the daemon (default: %(default)s)")
    parser.add_argument("--clients", type=int, default=50, help="at once (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="an empty folder to work in that stays")
    args = parser.parse_args()
    plan = Plan(kills=args.kills, clients=args.clients)
    with tempfile.TemporaryDirectory(prefix="autosched-chaos-") as temporary:
        told = asyncio.run(kills(args.keep or Path(temporary), plan, random.Random(args.seed)))
    sys.stdout.write(json.dumps(told, indent=1) + "\n")
    return bool(told["violations"])


if __name__ == "__main__":
    sys.exit(main())
