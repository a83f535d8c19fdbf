"""Cost of running jobs apart: trials per minute of a user's job in the sandbox and without it, in turns. Prints JSON.

``python benchmarks/jobs_apart.py`` tunes MobileNet V2 for the holder of a `user` key, once with `daemon.sandbox =
"require"` and once with `"off"`, in pairs; which comes first changes from pair to pair. The ratio of a pair is that of
trials per minute, from the submission to the end, and from the first trial to the last. As root, or where the kernel
lets users make namespaces.
"""

import argparse
import asyncio
import json
import os
import tempfile
from pathlib import Path
from statistics import geometric_mean, stdev
from typing import Any

import mobilenets
import psutil
from private import answering, private_daemon
from raw_results import origin

from autosched.api.connection import Daemon
from autosched.daemon.access import keyring
from autosched.model import JobSpec
from autosched.protocol import Done, Shutdown
from autosched.protocol.roles import Role
from autosched.wire import keys

MODES = ("require", "off")


def main() -> None:
    """Measures all pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--trials", type=int, default=96)
    parser.add_argument("--backend", default="autotvm")
    args = parser.parse_args()
    pairs = []
    for number in range(args.pairs):
        order = MODES if number % 2 == 0 else MODES[::-1]
        pairs.append({mode: asyncio.run(measured(mode, args, number)) for mode in order})
    ratios = {what: [pair["require"][what] / pair["off"][what] for pair in pairs] for what in ("whole", "trials")}
    told: dict[str, Any] = {
        **origin(),
        "trials": args.trials,
        "backend": args.backend,
        "pairs": pairs,
        "ratio": {what: round(geometric_mean(found), 4) for what, found in ratios.items()},
    }
    if args.pairs > 1:
        told["standard_error"] = {what: round(stdev(found) / len(found) ** 0.5, 4) for what, found in ratios.items()}
    print(json.dumps(told, indent=1))


async def measured(mode: str, args: argparse.Namespace, seed: int) -> dict[str, float]:
    """Returns trials per minute of one job: of the whole job, and between its first and last trial."""
    with tempfile.TemporaryDirectory(prefix="autosched-bench-") as made:
        folder = Path(made)
        key, _ = keyring.make(folder / "state" / "keys", Role.USER)
        model = mobilenets.write_v2(folder / "net.onnx")
        settings = f'listen = "127.0.0.1:0"\nsandbox = "{mode}"\n'
        with private_daemon(folder, settings) as process:
            owner = await answering(f"unix:{folder}/api.sock", psutil.Process(process.pid))
            known = json.loads((folder / "state" / "daemon.json").read_text())
            os.environ[keys.VARIABLE] = key.line()
            daemon = await Daemon.connect(known["addresses"][-1])
            del os.environ[keys.VARIABLE]
            sha256 = await daemon.upload(model)
            spec = JobSpec(
                name="net", model=sha256, backend=args.backend, trials=args.trials, seed=seed, fresh=True,
            )  # fmt: skip
            job = (await daemon.submit(spec)).job
            first_s = last_s = 0.0
            async for view in daemon.follow(job, wait_s=0.2):
                if view.trials and not first_s:
                    first_s, before = view.now, view.trials
                if view.trials == args.trials and not last_s:
                    last_s = view.now
            assert view.failure is None, view.failure
            daemon.close()
            await owner.link.call(Shutdown(), Done)
            owner.close()
    assert view.ended_at is not None
    return {
        "whole": 60 * view.trials / (view.ended_at - view.submitted_at),
        "trials": 60 * (view.trials - before) / (last_s - first_s),
    }


if __name__ == "__main__":
    main()
