"""`autosched board`: run a TVM RPC server on a board."""

import importlib.util
import os
import sys
from collections.abc import Sequence

import click

from autosched.api import tvm_programs
from autosched.cli.listings import caller
from autosched.cli.output import say
from autosched.errors import RequestError
from autosched.process import isolated_python
from autosched.protocol import Done, ForgetBoard


@click.group(invoke_without_command=True)
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
@click.pass_context
def board(
    context: click.Context,
    key: str,
    tracker: str | None,
    host: str,
    port: int,
    custom_addr: str | None,
    allow: Sequence[str],
) -> int:
    """Run a TVM RPC server on the board itself, until this command is stopped.

    Peers that can connect can run any program here. This is TVM's own server, but it survives sessions that end badly,
    waits for an absent daemon, and refuses all machines except those of --allow.
    """
    if context.invoked_subcommand is not None:
        return 0
    if importlib.util.find_spec("tvm") is None:
        raise RequestError(tvm_programs.INSTALL)
    words = ["--key", key or "board", "--host", host, "--port", str(port)]
    words += ["--tracker", tracker] if tracker else []
    words += ["--custom-addr", custom_addr] if custom_addr else []
    words += [word for network in allow for word in ("--allow", network)]
    sys.stdout.flush()
    os.execv(sys.executable, isolated_python.command(tvm_programs.BOARD_SERVER, *words))


@board.command()
@click.argument("unit", metavar="BOARD")
@click.pass_obj
def forget(host: str | None, unit: str) -> None:
    """Stop waiting for a board that had registered itself and is gone."""
    with caller(host) as daemon:
        daemon.call(ForgetBoard(unit=unit), Done)
    say(f"board {unit} is forgotten. It may register itself again")
