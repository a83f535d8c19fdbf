"""``python -m autosched.client``: started by the daemon for each job, or by hand on another machine."""

import argparse
import asyncio
import logging
import os
import sys
from pathlib import Path

from autosched.client.host import Host
from autosched.errors import AutoschedError
from autosched.link import Link
from autosched.protocol import DAEMON_METHODS, PROTOCOL, Hello, Welcome
from autosched.version import __version__

log = logging.getLogger(__name__)


async def serve(address: str, job: int, token: str, workdir: Path) -> None:
    """Host the job until the daemon says stop or goes away."""
    host = Host(workdir)
    link = await Link.open(address, serves=DAEMON_METHODS, handler=host.handle)
    software = f"autosched {__version__}"
    await link.call(Hello(protocol=PROTOCOL, software=software, role="client", job=job, token=token), Welcome)
    beat = asyncio.get_running_loop().create_task(host.beat())
    try:
        await host.begin(link)
        log.info("the daemon is gone: %s", await link.wait_closed())
    finally:
        beat.cancel()
        host.kill()


def main() -> None:
    """Parse the command line, host the job, and leave no process behind."""
    parser = argparse.ArgumentParser(prog="python -m autosched.client", description=__doc__)
    parser.add_argument("--connect", required=True, metavar="ADDRESS", help="tcp://host:port or unix:/path")
    parser.add_argument("--job", required=True, type=int)
    parser.add_argument("--workdir", type=Path, default=os.environ.get("AUTOSCHED_JOB_DIR", "."))
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    code = 1
    try:
        asyncio.run(serve(args.connect, args.job, os.environ.get("AUTOSCHED_TOKEN", ""), args.workdir))
    except AutoschedError as error:
        log.error("%s", error)
    except Exception:
        log.exception("the client crashed")
    os._exit(code)  # threads may still run a stage whose processes have just been killed


if __name__ == "__main__":
    main()
