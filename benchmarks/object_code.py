"""The machine code of compiled networks, to show that a change leaves it as it is.

``python benchmarks/object_code.py [NAME ...] > before.json``, then, after the change, with ``--against before.json``.
"""

import argparse
import json
import sys
from pathlib import Path

from networks import networks

from autosched_tvm.compile.object_digest import digest_of
from compiled_networks import compiled


def main() -> int:
    """Prints the digest of each library; returns 1 if one differs from the earlier ones."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="networks of networks.toml (default: all)")
    parser.add_argument("--against", type=Path, metavar="FILE", help="earlier output of this program")
    args = parser.parse_args()
    before = {} if args.against is None else json.loads(args.against.read_text())
    found, other = {}, []
    for network in networks(*(args.names or before)):
        with compiled([network.name]) as libraries:
            found[network.name] = digest = digest_of(libraries[network.name])
        if before.get(network.name, digest) != digest:
            other.append(network.name)
        print(f"{network.name}: {digest}{' differs' if network.name in other else ''}", file=sys.stderr, flush=True)
    print(json.dumps(found, indent=1))
    return 1 if other else 0


if __name__ == "__main__":
    sys.exit(main())
