"""What operators do to lanes and devices: drain, undrain, free."""

import click

from autosched import units
from autosched.cli.listings import caller
from autosched.cli.output import say
from autosched.protocol import Done, DrainUnit, FreeUnit, ListDevices, ReturnUnit, UnitList

NEEDS_FORCE = 5


@click.command()
@click.argument("unit", metavar="UNIT")
@click.option("--reason", required=True, metavar="TEXT", help="Why; shown to everybody who waits for it.")
@click.pass_obj
def drain(host: str | None, unit: str, reason: str) -> None:
    """Give a lane or device no more steps. What runs on it goes on; it stays drained over restarts."""
    with caller(host) as daemon:
        daemon.call(DrainUnit(unit=unit, reason=reason), Done)
        held = next(
            (u for u in daemon.call(ListDevices(), UnitList).units if u.unit == unit and u.job is not None), None
        )
    still = f"; job {held.job} {held.stage} runs on it for {units.duration(held.left_s)} at most" if held else ""
    say(f"{unit} gets no more steps{still}. Give it steps again:  autosched undrain {unit}")


@click.command()
@click.argument("unit", metavar="UNIT")
@click.pass_obj
def undrain(host: str | None, unit: str) -> None:
    """Give a drained lane or device steps again."""
    with caller(host) as daemon:
        daemon.call(ReturnUnit(unit=unit), Done)
    say(f"{unit} gets steps again.")


@click.command()
@click.argument("unit", metavar="UNIT")
@click.option("--force", is_flag=True, help="I know that nothing runs on it.")
@click.pass_obj
def free(host: str | None, unit: str, force: bool) -> int:
    """Say that nothing runs on a lane or device any more, when its holder cannot.

    The holder's client is given up, and killed if it runs on the daemon's machine.
    """
    with caller(host) as daemon:
        if force:
            daemon.call(FreeUnit(unit=unit), Done)
            say(f"{unit} is free as soon as its holder's client is dead. See:  autosched devices")
            return 0
        found = daemon.call(ListDevices(), UnitList).units
    if (held := next((u for u in found if u.unit == unit and u.job is not None), None)) is None:
        say(f"nothing holds {unit}. See:  autosched devices")
        return 0
    say(
        f"{unit} is held by job {held.job}, {held.stage}, for {units.duration(held.held_s)} and at most"
        f" {units.duration(held.left_s)} more. If something still runs there, the next measurement is wrong."
        f" If you know that nothing does:  autosched free {unit} --force"
    )
    return NEEDS_FORCE
