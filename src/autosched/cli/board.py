"""`autosched board`: run a TVM RPC server on a board."""

import importlib.util
import os
import sys
from collections.abc import Sequence

import click

from autosched.api import tvm_programs
from autosched.errors import RequestError
from autosched.process import isolated_python


@click.command()
@click.option("--key", default="", metavar="KIND", help="Kind of this board, used by --tracker.")
@click.option("--tracker", metavar="HOST:PORT", help="The daemon's port for boards, with which this board registers.")
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Address to listen on.")
@click.option("--port", type=click.IntRange(1, 65_535), default=9091, show_default=True, help="First port to try.")
@click.option("--custom-addr", metavar="ADDRESS", help="Address at which the daemon reaches this board.")
@click.option(
    "--allow",
    multiple=True,
    metavar="NETWORK",
    help="Networks that may connect: 192.168.7.0/24. Default: --tracker's machine.",
)
def board(key: str, tracker: str | None, host: str, port: int, custom_addr: str | None, allow: Sequence[str]) -> int:
    """Run a TVM RPC server on the board itself, until this command is stopped.

    Peers that can connect can run any program here. This is TVM's own server, but it survives sessions that end badly,
    waits for an absent daemon, and refuses all machines except those of --allow.
    """
    if importlib.util.find_spec("tvm") is None:
        raise RequestError(tvm_programs.INSTALL)
    words = ["--key", key or "board", "--host", host, "--port", str(port)]
    words += ["--tracker", tracker] if tracker else []
    words += ["--custom-addr", custom_addr] if custom_addr else []
    words += [word for network in allow for word in ("--allow", network)]
    sys.stdout.flush()
    os.execv(sys.executable, isolated_python.command(tvm_programs.BOARD_SERVER, *words))
