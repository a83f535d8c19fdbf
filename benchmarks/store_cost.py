"""Cost of the record store to the daemon: ``python benchmarks/store_cost.py`` prints one JSON object.

`transitions.py`, paced, in turns with a store and without, one daemon each. `bare`: its transitions as they are, which
make no records; `measuring`: each profile step makes --records records, so that there is work for the store.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

TIMEOUT_S = 600.0


def main() -> None:
    """Measures and prints the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=300)
    parser.add_argument("--rate", type=float, default=600.0, help="transitions a second")
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--records", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=3)
    args = parser.parse_args()
    told: dict[str, Any] = {
        "clients": args.clients, "rate": args.rate, "seconds": args.seconds, "records_per_step": args.records,
    }  # fmt: skip
    for name, records in (("bare", 0), ("measuring", args.records)):
        pairs = []
        for _ in range(args.pairs):
            on, off = (once(args, records, *words) for words in ((), ("--no-store",)))
            pairs.append({"on": on, "off": off})
            print(f"{name}: {on['daemon_cpu_us']:.0f} us with, {off['daemon_cpu_us']:.0f} us without", file=sys.stderr)
        told[name] = {
            "pairs": pairs,
            "ratio": statistics.median(pair["on"]["daemon_cpu_us"] / pair["off"]["daemon_cpu_us"] for pair in pairs),
            "on_us": statistics.median(pair["on"]["daemon_cpu_us"] for pair in pairs),
            "off_us": statistics.median(pair["off"]["daemon_cpu_us"] for pair in pairs),
            "ack_p99_ms": {
                which: statistics.median(pair[which]["ack_ms"]["p99"] for pair in pairs) for which in ("on", "off")
            },
        }
    print(json.dumps(told, indent=1))


def once(args: argparse.Namespace, records: int, *words: str) -> dict[str, Any]:
    """Measures one daemon's transitions."""
    command = [
        sys.executable, str(Path(__file__).with_name("transitions.py")), "--parts", "paced", "--clients",
        str(args.clients), "--rate", str(args.rate), "--seconds", str(args.seconds), "--records", str(records), *words,
    ]  # fmt: skip
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=TIMEOUT_S)
    measured: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])["paced"]
    return measured


if __name__ == "__main__":
    main()
