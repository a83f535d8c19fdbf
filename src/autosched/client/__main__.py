"""``python -m autosched.client``: started by the daemon for each job, or by a user on another machine."""

import argparse
import asyncio
import logging
import os
import sys
import time
from pathlib import Path

from autosched.client.daemon_session import DaemonSession
from autosched.client.helper_runner import HelperRunner
from autosched.client.hindrances import Hindrances
from autosched.client.job_runner import JobRunner
from autosched.client.watchdog_process import WatchdogProcess
from autosched.errors import AutoschedError, Busy, DaemonUnreachable, Hindered
from autosched.launch.job_folder import JOB_DIR
from autosched.process import client_limits, process_tree
from autosched.wire.link import Handler
from autosched.wire.pauses import pauses

log = logging.getLogger(__name__)

CONNECT_S = 20.0
"""Seconds for which a new client tries to connect."""


async def serve(
    address: str, job: int, token: str, workdir: Path, backstop: WatchdogProcess | None, *, helps: bool
) -> None:
    """Host the job, or help its client, until the daemon orders the end or cannot be found any more."""
    line = DaemonSession(address, job, token)
    host = HelperRunner(workdir, line) if helps else JobRunner(workdir, line, backstop)
    await _connected(line, host.handle)
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
    code = 1
    try:
        await serve(address, job, token, workdir, backstop, helps=helps)
    except Exception as error:
        if isinstance(error, AutoschedError):
            log.error("%s", error)
        else:
            log.exception("the client crashed")
        code = os.EX_TEMPFAIL if Hindrances().cause(error) else 1
    os._exit(code)


async def _connected(line: DaemonSession, handler: Handler) -> None:
    """Connect for the first time. A daemon that has no place, or is away, is asked again for a while. Raises Hindered
    then, and the daemon's refusal at once."""
    until = time.monotonic() + CONNECT_S
    for pause_s in pauses():
        try:
            return await line.open(handler)
        except (Busy, DaemonUnreachable) as error:
            if time.monotonic() + pause_s > until:
                raise Hindered(f"the daemon took no connection within {CONNECT_S:g} s: {error}") from error
            await asyncio.sleep(pause_s)


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
    if folder := os.environ.get(JOB_DIR):
        process_tree.wear(Path(folder))  # before anything is started
    client_limits.limit_tasks()
    token = os.environ.get("AUTOSCHED_TOKEN", "")
    asyncio.run(serve_and_exit(args.connect, args.job, token, args.workdir, backstop, helps=args.helps))


if __name__ == "__main__":
    main()
