"""`autosched top`: watch a daemon live."""

import asyncio
import sys
from importlib.util import find_spec

import click

from autosched.api import daemon_address
from autosched.cli.output import INTERRUPTED, dumb


@click.command()
@click.option("--once", is_flag=True, help="Print the present state once.")
@click.option("--plain", is_flag=True, help="Plain text without keys, the default without the extra [tui].")
@click.pass_obj
def top(host: str | None, once: bool, plain: bool) -> int:
    """Watch lanes, devices, jobs and latencies live.

    Keys: arrows select a job; e explains it, c cancels it, p sets its priority; d drains a unit, u undrains it; + and -
    zoom the time line; ? lists all keys.
    """
    where = daemon_address.named(host) or daemon_address.default()
    try:
        once = once or not sys.stdout.isatty() or dumb()  # without a terminal nothing can be updated in place
        if once or plain or find_spec("textual") is None:
            from autosched.top.plain import show

            asyncio.run(show(where, once=once))
        else:
            from autosched.top.app import Top

            Top(where).run()
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0
