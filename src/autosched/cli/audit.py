"""`autosched audit`: who changed what, when, and what came of it."""

import click

from autosched.cli.listings import caller
from autosched.cli.output import data, document, say, table
from autosched.protocol import AuditEntry, AuditList, ListAudit


@click.command()
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True, help="At most so many.")
@click.option("--before", type=click.IntRange(1), metavar="NUMBER", help="Only what is older than the entry NUMBER.")
@click.option("-o", "--format", "style", type=click.Choice(("table", "json")), default="table", help="How to print.")
@click.pass_obj
def audit(host: str | None, limit: int, before: int | None, style: str) -> None:
    """List the commands that changed something, the newest last: by whom, from where, and what came of them."""
    with caller(host) as daemon:
        entries = daemon.call(ListAudit(limit=limit, before=before), AuditList).entries
    if style == "json":
        return document("audit", entries)
    if not entries:
        return say("Nobody has changed anything yet.")
    headers = ("NO", "WHEN", "WHO", "ROLE", "COMMAND", "OUTCOME", "ABOUT")
    data(table(headers, [_row(entry) for entry in entries], right=(0,)))


def _row(entry: AuditEntry) -> tuple[str, ...]:
    when = entry.at[:19].replace("T", " ")
    return (str(entry.id), when, entry.who, entry.role, entry.command, entry.outcome or "?", entry.about)
