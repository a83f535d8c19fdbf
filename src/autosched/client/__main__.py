"""``python -m autosched.client``: started by the daemon for each job, or by a user on another machine."""

import argparse
import asyncio
import logging
import os
import sys
from pathlib import Path

from autosched.client.daemon_session import DaemonSession
from autosched.client.helper_runner import HelperRunner
from autosched.client.job_runner import JobRunner
from autosched.client.watchdog_process import WatchdogProcess
from autosched.errors import AutoschedError

log = logging.getLogger(__name__)


async def serve(
    address: str, job: int, token: str, workdir: Path, backstop: WatchdogProcess | None, *, helps: bool
) -> None:
    """Host the job, or help its client, until the daemon orders the end or cannot be found any more."""
    line = DaemonSession(address, job, token)
    host = HelperRunner(workdir, line) if helps else JobRunner(workdir, line, backstop)
    await line.open(host.handle)
    loop = asyncio.get_running_loop()
    beat, keep, begin = (loop.create_task(work) for work in (line.beat(), line.keep(host.standing), host.begin()))
    try:
        await asyncio.wait({keep, begin}, return_when=asyncio.FIRST_COMPLETED)
        if begin.done():
            begin.result()
        log.info("ending: %s", await keep)
    finally:
        host.kill()
        for task in (beat, keep, begin):
            task.cancel()


async def serve_and_exit(
    address: str, job: int, token: str, workdir: Path, backstop: WatchdogProcess | None, *, helps: bool
) -> None:
    """Like `serve`, then end the process at once, even if threads still run a stage of killed processes."""
    try:
        await serve(address, job, token, workdir, backstop, helps=helps)
    except AutoschedError as error:
        log.error("%s", error)
    except Exception:
        log.exception("the client crashed")
    os._exit(1)


def main() -> None:
    """Parse the command line, host the job, and leave no process behind."""
    parser = argparse.ArgumentParser(prog="python -m autosched.client", description=__doc__)
    parser.add_argument("--connect", required=True, metavar="ADDRESS", help="tcp://host:port or unix:/path")
    parser.add_argument("--job", required=True, type=int)
    parser.add_argument("--workdir", type=Path, default=os.environ.get("AUTOSCHED_JOB_DIR", "."))
    parser.add_argument("--watched", action="store_true", help="the process that started it ends it should it freeze")
    parser.add_argument("--helps", action="store_true", help="it helps the job's client, which is on another host")
    args = parser.parse_args()
    backstop = None if args.watched else WatchdogProcess()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    token = os.environ.get("AUTOSCHED_TOKEN", "")
    asyncio.run(serve_and_exit(args.connect, args.job, token, args.workdir, backstop, helps=args.helps))


if __name__ == "__main__":
    main()
