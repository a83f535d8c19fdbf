"""`autosched hosts`: the machines that agents lend to the daemon."""

import os
import time
from pathlib import Path

import click

from autosched.cli.listings import caller
from autosched.cli.output import data, document, document_option, listing_option, say, show
from autosched.errors import RequestError
from autosched.protocol import Done, DrainHost, ForgetHost, HostList, ListHosts, ReturnHost
from autosched.text import tables

JOIN_LOOKS, JOIN_LOOK_S = 60, 0.5
"""Maximum checks whether an added host has joined, and seconds between two checks."""
NONE = "No other host is lent to the daemon. Lend one, there:  autosched agent --daemon tls://HOST:PORT --key FILE"


@click.command()
@listing_option
@click.pass_obj
def list_(host: str | None, style: str) -> None:
    """List the hosts that agents lend, and their work."""
    with caller(host) as daemon:
        found = daemon.call(ListHosts(), HostList).hosts
    if not found and style in ("table", "wide"):
        return say(NONE)
    show(style, "hosts", tables.HOSTS, found, id=lambda one: one.host)


@click.command()
@click.argument("name", metavar="HOST")
@document_option
@click.pass_obj
def show_(host: str | None, name: str, style: str) -> None:
    """Show one host: its machine, versions, units and clients, and why it is away."""
    with caller(host) as daemon:
        (found,) = daemon.call(ListHosts(host=name), HostList).hosts
    if style == "json":
        return document("host", found)
    for line in tables.host_facts(found):
        data(line)


@click.command()
@click.argument("name", metavar="HOST")
@click.argument("reason", metavar="REASON...", nargs=-1, required=True)
@click.pass_obj
def drain(host: str | None, name: str, reason: tuple[str, ...]) -> None:
    """Give the units of a host no more steps; running steps continue. The reason is shown to users of waiting jobs."""
    with caller(host) as daemon:
        daemon.call(DrainHost(host=name, reason=" ".join(reason)), Done)
    say(f"host {name} gets no steps. Give it steps again:  autosched hosts undrain {name}")


@click.command()
@click.argument("name", metavar="HOST")
@click.pass_obj
def undrain(host: str | None, name: str) -> None:
    """Give all units of a host steps again."""
    with caller(host) as daemon:
        daemon.call(ReturnHost(host=name), Done)
    say(f"host {name} gets steps again")


@click.command()
@click.argument("name", metavar="HOST")
@click.pass_obj
def forget(host: str | None, name: str) -> None:
    """Remove a host that has left: jobs no longer wait for it."""
    with caller(host) as daemon:
        daemon.call(ForgetHost(host=name), Done)
    say(f"host {name} is forgotten. Its agent may lend it again")


def _address(host: str | None) -> str:
    """The address by which agents reach the daemon. Raises RequestError."""
    address = host or os.environ.get("AUTOSCHED_HOST", "")
    if not address.startswith(("tls://", "tcp://", "unix:")):
        raise RequestError("name the address by which agents reach the daemon: autosched --host tls://HOST:PORT ...")
    return address


@click.command()
@click.argument("count", metavar="N", type=click.IntRange(0, 1_000))
@click.option(
    "--slurm",
    "file",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Batch file of one agent: etc/slurm/agent.sbatch, with the options of your cluster.",
)
@click.option(
    "--key",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The agents' key, on a file system of the nodes. Default: AUTOSCHED_KEY_FILE.",
)
@click.option("--name", "prefix", default="slurm", show_default=True, help="Prefix of their names, before the number.")
@click.pass_obj
def scale(host: str | None, count: int, file: Path, key: Path | None, prefix: str) -> None:
    """Have N agents run as jobs of Slurm: submit missing ones, cancel surplus ones.

    Run it on a machine that can submit jobs, with the address at which nodes reach the daemon: autosched --host
    tls://lab:7433 hosts scale --slurm agent.sbatch 4
    """
    from autosched.launch import slurm_agents

    address = _address(host)
    secret = key or Path(os.environ.get("AUTOSCHED_KEY_FILE", ""))
    if not secret.is_file():
        raise RequestError("name the key of the agents: --key FILE. Make one:  autosched key new agent slurm")
    environment = {"AUTOSCHED_HOST": address, "AUTOSCHED_KEY_FILE": str(secret.absolute())}
    done, there = slurm_agents.scale(file, count, prefix, environment)
    for name in done.submitted:
        say(f"{name} is submitted")
    for job in done.cancelled:
        say(f"{job.name} is cancelled (job {job.number})")
    for job in there:
        data(f"{job.name}: job {job.number}, {job.state.lower()}" + (f" on {job.node}" if job.node else ""))


@click.command()
@click.argument("machine", metavar="ssh://USER@HOST")
@click.option(
    "--key", type=click.Path(path_type=Path), required=True, metavar="FILE", help="The agent's key, on this machine."
)
@click.option("--name", metavar="NAME", help="Name of the machine in the lab. Default: HOST, without its domain.")
@click.option(
    "--install",
    metavar="REQUIREMENT",
    default="",
    help="What pip installs there, if it is not this version of autosched from an index: a URL, or a path there.",
)
@click.pass_obj
def add(host: str | None, machine: str, key: Path, name: str | None, install: str) -> None:
    """Install an agent on a machine by ssh, start it with systemd, and wait until it lends the machine.

    Give the address at which that machine reaches the daemon: autosched --host tls://lab:7433 hosts add ssh://me@lab2
    --key lab2.key
    """
    from autosched.launch import ssh_agents

    address, there = _address(host), ssh_agents.machine(machine)
    called = name or there.name
    ssh_agents.add(there, ssh_agents.script(address, ssh_agents.key_of(key), called, install))
    say(f"the agent of {called} is started")
    for _ in range(JOIN_LOOKS):
        with caller(host) as daemon:
            found = [one for one in daemon.call(ListHosts(), HostList).hosts if one.host == called]
        if found and found[0].state == "here":
            for line in tables.host_facts(found[0]):
                data(line)
            return
        time.sleep(JOIN_LOOK_S)
    raise RequestError(
        f"{called} does not lend itself yet. What its agent says:  {' '.join(there.command[:-2])} journalctl"
        " --user-unit autosched-agent -n 20"
    )
