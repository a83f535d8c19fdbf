"""Tries the program on machines and in surroundings of other kinds: `make machines`.

Prints one line for each case: whether it holds, its time in seconds, and the words that were seen. Cases that hold at
this commit are not tried again; a run that was interrupted goes on where it stopped. Exit code 1: a case does not hold,
or has not been tried for lack of time.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nets
from machines import cpus, distributions, surroundings
from machines.case import CACHE, PROJECT, Case, Failed, Impossible

TVM = surroundings.Program("tvm", "--trials 8", "--trials 64", nets.small_net().SerializeToString())
PARTS: dict[str, Callable[[], list[Case]]] = {
    "distributions": distributions.cases,
    "cpus": cpus.cases,
    "surroundings": lambda: surroundings.cases(TVM),
}
WORDS_MAX = 160
HOLDS, FAILS, IMPOSSIBLE = "holds", "FAILS", "impossible"


def main() -> int:
    """Tries the cases, and prints the table."""
    parser = argparse.ArgumentParser(prog="python -m machines", description=__doc__)
    parser.add_argument("parts", nargs="*", default=list(PARTS), metavar="PART", help=", ".join(PARTS))
    parser.add_argument(
        "--only", default="", metavar="WORDS", help="only cases whose names match this regular expression"
    )
    parser.add_argument("--again", action="store_true", help="also those that hold at this commit")
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no case later (default: %(default)s)")
    parser.add_argument(
        "--at-once", type=int, default=os.cpu_count(), help="number of cases (default: one for each core)"
    )
    args = parser.parse_args()
    commit = _commit()
    results = CACHE / f"results-{commit}.jsonl"
    known = {} if args.again or commit.endswith("changed") else _known(results)
    cases = [one for part in args.parts for one in PARTS[part]() if re.search(args.only, one.name)]
    deadline_at = time.monotonic() + 60 * args.minutes
    CACHE.mkdir(parents=True, exist_ok=True)
    lock = threading.Lock()

    def attempt(case: Case) -> dict[str, Any] | None:
        if known.get(case.name, {}).get("outcome") == HOLDS:
            return known[case.name]
        if time.monotonic() > deadline_at:
            return None
        told = {"case": case.name, "commit": commit, **_tried(case)}
        with lock, results.open("a") as file:
            file.write(json.dumps(told, ensure_ascii=False) + "\n")
            sys.stderr.write(f"{case.name}: {told['outcome']}\n")
        return told

    with ThreadPoolExecutor(args.at_once) as pool:
        found = list(pool.map(attempt, cases))
    for case, told in zip(cases, found, strict=True):
        line = told or {"outcome": "not tried", "seconds": 0, "words": "no time was left: type the command again"}
        words = line["words"] if line["outcome"] == FAILS else line["words"][:WORDS_MAX]
        sys.stdout.write(f"{line['outcome']:<10} {line['seconds']:>5.0f} s  {case.name}: {words}\n")
    counts = {
        name: sum(told is not None and told["outcome"] == name for told in found) for name in (HOLDS, FAILS, IMPOSSIBLE)
    }
    sys.stdout.write(
        ", ".join(f"{count} {name}" for name, count in counts.items()) + f" of {len(cases)}, at {commit}\n"
    )
    return not all(told is not None and told["outcome"] != FAILS for told in found)


def _tried(case: Case) -> dict[str, Any]:
    """Returns the outcome, the time in seconds and the words of a case."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="machine-", ignore_cleanup_errors=True) as folder:
        try:
            outcome, words = HOLDS, case.attempt(Path(folder))
        except Failed as error:
            outcome, words = FAILS, str(error)
        except Impossible as error:
            outcome, words = IMPOSSIBLE, str(error)
        except subprocess.TimeoutExpired as error:
            outcome, words = FAILS, f"it did not end within {error.timeout:g} s"
    return {"outcome": outcome, "seconds": round(time.monotonic() - began, 1), "words": words}


def _known(results: Path) -> dict[str, dict[str, Any]]:
    """Returns the last result of each case."""
    if not results.exists():
        return {}
    return {told["case"]: told for told in map(json.loads, results.read_text().splitlines())}


def _commit() -> str:
    """Returns the name of the commit, with the word `changed` where files differ from it."""
    done = subprocess.run(
        ["git", "-C", str(PROJECT), "describe", "--always", "--dirty=-changed", "--abbrev=12", "--exclude", "*"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
