"""`autosched blocked list|forgive`: candidates that are blocked after repeated failures."""

import click

from autosched import formatting
from autosched.cli.command_group import Group
from autosched.cli.listings import caller
from autosched.cli.output import data, document, document_option, say, table
from autosched.protocol import BlockedCandidate, BlockedList, Done, ForgiveBlocked, ListBlocked
from autosched.records import identity

SHA256_SHOWN = 12


@click.group(cls=Group)
def blocked() -> None:
    """List candidates that are blocked after repeated failures; unblock one.

    A candidate that fails twice where other candidates are measured well is blocked for all jobs. A job whose search
    proposes it has a failed trial at once.
    """


@blocked.command("list")
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True, help="Maximum number of entries.")
@click.option(
    "--before", type=click.IntRange(1, formatting.WHOLE_MAX), metavar="NUMBER", help="Only entries before this number."
)
@document_option
@click.pass_obj
def list_(host: str | None, limit: int, before: int | None, style: str) -> None:
    """List blocked candidates with reasons, newest last."""
    with caller(host) as daemon:
        found = daemon.call(ListBlocked(limit=limit, before=before), BlockedList).candidates
    if style == "json":
        return document("blocked", found)
    if not found:
        return say("No candidate is blocked.")
    data(table(("NO", "WHERE", "WORKLOAD", "CANDIDATE", "WHY"), [_row(one) for one in found], right=(0,), give=4))


@blocked.command()
@click.argument("number", type=click.IntRange(1, formatting.WHOLE_MAX))
@click.pass_obj
def forgive(host: str | None, number: int) -> None:
    """Allow a candidate to be run again, by its number in the list."""
    with caller(host) as daemon:
        daemon.call(ForgiveBlocked(number=number), Done)
    say(f"candidate {number} may be run again.")


def _row(one: BlockedCandidate) -> tuple[str, ...]:
    return (str(one.number), identity.brief(one.place), one.workload, one.sha256[:SHA256_SHOWN], one.reason)
