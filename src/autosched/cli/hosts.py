"""`autosched hosts`: the machines that agents lend to the daemon."""

import click

from autosched.cli.listings import caller
from autosched.cli.output import data, document, document_option, listing_option, say, show
from autosched.protocol import Done, DrainHost, ForgetHost, HostList, ListHosts, ReturnHost
from autosched.text import tables

NONE = "No other host is lent to the daemon. Lend one, there:  autosched agent --daemon tls://HOST:PORT --key FILE"


@click.command()
@listing_option
@click.pass_obj
def list_(host: str | None, style: str) -> None:
    """List the hosts that agents lend, and what each is doing."""
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
    """Give no unit of a host steps any more; what runs goes on. Say why: who waits is told."""
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
    """Do not expect a host back that has left: no job waits for it any more."""
    with caller(host) as daemon:
        daemon.call(ForgetHost(host=name), Done)
    say(f"host {name} is forgotten. Its agent may lend it again")
