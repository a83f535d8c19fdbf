"""``python -m autosched_runtime check NETWORK.asn``: is the network right here, and as fast as promised?

Exit codes: 0 right and as fast as promised, or nothing was promised; 1 outputs differ; 2 wrong words; 3 slower than
promised; 4 the network is missing, or this machine cannot run it.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from autosched_runtime.errors import NetworkError
from autosched_runtime.version import __version__


def main(words: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m autosched_runtime", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"autosched-runtime {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    checks = commands.add_parser("check", help="check a network where it runs")
    checks.add_argument("network", type=Path, metavar="NETWORK", help="NAME.asn or NAME.so")
    checks.add_argument("--seconds", type=float, default=2.0, help="of the measurement; 0: outputs alone. Default: 2")
    checks.add_argument("--threads", type=int, help="of an inference. Default: as many as it was tuned for")
    checks.add_argument("--model", type=Path, help="the model, which ONNX Runtime runs in turns with the network")
    checks.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args(words)
    if not 0 <= args.seconds <= 600:
        parser.error(f"--seconds is {args.seconds}: 0 to 600 are possible")
    from autosched_runtime.check import UNUSABLE, check, worst  # it loads NumPy

    try:
        found = check(args.network, seconds=args.seconds, threads=args.threads, model=args.model)
    except NetworkError as error:
        if args.json:
            sys.stdout.write(json.dumps({"error": str(error), "code": UNUSABLE}) + "\n")
        else:
            sys.stderr.write(f"error: {error}\n")
        return UNUSABLE
    if args.json:
        sys.stdout.write(json.dumps({"checked": [one.json() for one in found]}) + "\n")
    else:
        sys.stdout.writelines(f"{line}\n" for one in found for line in one.lines())
    return worst(found)


if __name__ == "__main__":
    sys.exit(main())
