"""The fault matrix against a real daemon with 50 clients: `make chaos`, or `python -m chaos` with tests/ on the path.

Prints one JSON object with a part for each of PARTS; their ``violations`` must be empty. ``--keep FOLDER`` leaves logs
and databases there.
"""

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from chaos import run

PARTS = {
    "kills": run.kills, "matrix": run.matrix, "makespan": run.makespan, "tvm": run.tvm, "records": run.records,
    "experiment": run.experiment, "hosts": run.hosts, "helpers": run.helpers, "gpus": run.gpus,
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
    parser.add_argument("--together", action="store_true", help="all parts at once, since most of them wait mostly")
    args = parser.parse_args()
    if args.together:
        words = ["--kills", str(args.kills), "--clients", str(args.clients), "--seed", str(args.seed)]
        return _together(args.parts, [*words, *(["--brief"] if args.brief else [])], args.keep)
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


def _together(parts: list[str], words: list[str], keep: Path | None) -> int:
    """Runs each part in its own process with these options; prints the results as `main` does."""
    if keep is not None:
        keep.mkdir(exist_ok=True)

    def one(part: str) -> tuple[int, dict[str, Any]]:
        own = [*words, "--keep", str(keep / part)] if keep is not None else words
        if keep is not None:
            (keep / part).mkdir()
        ended = subprocess.run([sys.executable, "-m", "chaos", part, *own], stdout=subprocess.PIPE, check=False)
        crashed = {part: {"violations": [f"its process ended with exit code {ended.returncode} and told nothing"]}}
        return ended.returncode, json.loads(ended.stdout) if ended.stdout else crashed

    with ThreadPoolExecutor(len(parts)) as pool:
        ended = list(pool.map(one, parts))
    sys.stdout.write(json.dumps({name: told for _, found in ended for name, told in found.items()}, indent=1) + "\n")
    return any(code for code, _ in ended)


if __name__ == "__main__":
    sys.exit(main())
