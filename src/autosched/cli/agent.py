"""`autosched agent`: lend this machine to a daemon on another one."""

import os
import platform
import re
import sys
from pathlib import Path

import click

from autosched import user_folders
from autosched.cli.listings import seconds_of


@click.command()
@click.option(
    "--daemon", "address", metavar="ADDRESS", help="tls://HOST:PORT of the daemon. Default: --host, or AUTOSCHED_HOST."
)
@click.option(
    "--key",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="This agent's key; operators make it with autosched key new agent. Default: AUTOSCHED_KEY_FILE.",
)
@click.option("--name", metavar="NAME", help="Name of this machine there. Default: its own name.")
@click.option(
    "-c",
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Settings: [resources], [[device]] and [log] apply. Default: half of the cores are a device.",
)
@click.option("--cores", type=click.IntRange(1), metavar="N", help="Number of cores of the device, without --config.")
@click.option(
    "--state-dir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Working folder of clients, and of files for later jobs. Default: ~/.local/state/autosched-agent.",
)
@click.option(
    "--idle",
    "quiet_s",
    is_flag=False,
    flag_value="5m",
    callback=seconds_of,
    metavar="[TIME]",
    help="Lend the machine only after other programs have not used it for this time. Default of TIME: 5m.",
)
@click.option(
    "--until-stdin-closes", is_flag=True, help="Stop when standard input closes, and so with the parent process."
)
@click.pass_obj
def agent(
    host: str | None, address: str | None, key: Path | None, name: str | None, config: Path | None, cores: int | None,
    state_dir: Path | None, quiet_s: float | None, until_stdin_closes: bool,
) -> int:  # fmt: skip
    """Lend this machine to a daemon on another one, until this command is stopped.

    The daemon starts clients of jobs here, on the lanes and devices of the settings. If the daemon cannot be reached
    for a minute, all clients are ended. SIGTERM gives the machine back at once: each job loses at most one step of each
    task, and continues on other hosts. With --idle the same happens as soon as other programs use half a core.
    """
    from autosched.errors import Refused, RequestError

    if sys.platform != "linux":
        raise Refused(
            f"an agent needs Linux, since it pins, watches and ends processes by what only its kernel has; this is"
            f" {platform.system()}. Tune for it from a Linux machine instead"
        )
    if not (wanted := address or host or os.environ.get("AUTOSCHED_HOST", "")):
        raise RequestError("name the daemon: autosched agent --daemon tls://HOST:PORT --key FILE")
    if key is not None:
        os.environ["AUTOSCHED_KEY_FILE"] = str(key.absolute())  # for the clients, too
    from autosched.agent.agent_process import serve
    from autosched.config import load, with_device_cores

    settings = with_device_cores(load(config), cores)
    folder = user_folders.expanded(state_dir) if state_dir else user_folders.state() / "autosched-agent"
    called = name or _own_name()
    return serve(wanted, called, settings, folder, quiet_s=quiet_s, until_eof=until_stdin_closes)


def _own_name() -> str:
    """This machine's name without its domain, and without characters that names of hosts cannot have."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", platform.node().partition(".")[0]).strip("-._")[:63] or "host"
