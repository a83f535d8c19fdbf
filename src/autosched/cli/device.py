"""`autosched device log`: recent events of a lane or device."""

import click

from autosched.cli.listings import caller
from autosched.cli.output import data, listing_option, say, show
from autosched.protocol import ListDevices, ListNews, NewsList, UnitList
from autosched.text import tables


@click.command()
@click.argument("unit", metavar="UNIT")
@click.option(
    "--limit", type=click.IntRange(1, 100), default=10, show_default=True, help="Maximum number of entries, the last."
)
@listing_option
@click.pass_obj
def log(host: str | None, unit: str, limit: int, style: str) -> None:
    """List failures of a lane or device since the daemon started, and drains with user and reason."""
    with caller(host) as daemon:
        found = daemon.call(ListNews(unit=unit, limit=limit), NewsList).news
        there = next((one for one in daemon.call(ListDevices(), UnitList).units if one.unit == unit), None)
    if there is not None and style in ("table", "wide"):
        for line in tables.unit_facts(there):
            data(f" {line}")
    if not found and style in ("table", "wide"):
        return say(f"Nothing out of the ordinary happened on {unit}. What ran:  autosched gantt --last 1h")
    show(style, "news", tables.NEWS, found, id=lambda one: one.at)
