"""`autosched audit`: the audit trail: commands that changed something, with user, time and outcome."""

import click

from autosched import formatting
from autosched.cli.listings import caller
from autosched.cli.output import listing_option, say, show
from autosched.protocol import AuditList, ListAudit
from autosched.text import tables


@click.command()
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True, help="Maximum number of entries.")
@click.option(
    "--before",
    type=click.IntRange(1, formatting.WHOLE_MAX),
    metavar="NUMBER",
    help="Only entries before this number.",
)
@listing_option
@click.pass_obj
def audit(host: str | None, limit: int, before: int | None, style: str) -> None:
    """List the commands that changed something, newest last: user, address and outcome."""
    with caller(host) as daemon:
        entries = daemon.call(ListAudit(limit=limit, before=before), AuditList).entries
    if not entries and style in ("table", "wide"):
        return say("Nothing was changed yet.")
    show(style, "audit", tables.AUDIT, entries, id=lambda entry: entry.id)
