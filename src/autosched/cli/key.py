"""`autosched key new|list|revoke`: keys for connections over TCP. For the daemon's own user, on its machine."""

from pathlib import Path

import click

from autosched.cli.command_group import Group
from autosched.cli.output import data, listing_option, say, show
from autosched.text.tables import Column

_config = click.option(
    "-c", "--config", type=click.Path(path_type=Path), metavar="FILE", help="Settings file of the daemon."
)


ROLES = click.Choice(("viewer", "user", "operator", "client", "agent"))
JOBS_MAX = 999_999_999
KEYS = (
    Column("KEY", lambda one: one.id),
    Column("ROLE", lambda one: one.role),
    Column("JOBS", lambda one: one.jobs or "-"),
    Column("MADE AT", lambda one: one.made_at),
    Column("FILE", lambda one: one.file, wide=True),
)


def folder_of(config: Path | None) -> Path:
    """Folder of the keys of a daemon with these settings."""
    from autosched.config import load
    from autosched.daemon.access import keyring

    return keyring.folder_of(load(config))


@click.group(cls=Group)
def key() -> None:
    """Make, list and revoke the keys of users who connect over TCP.

    A running daemon notices changes. To replace a key, make a new one of the same role, hand it out, and then revoke
    the old one: until then both are valid.
    """


@key.command()
@click.argument("role", type=ROLES)
@click.argument("name", default="")
@click.option("--jobs", type=click.IntRange(1, JOBS_MAX), help="Maximum number of its active jobs. Default: no limit.")
@_config
def new(role: str, name: str, jobs: int | None, config: Path | None) -> None:
    """Make a key and print it.

    NAME identifies the owner in the audit trail and in lists; a new key with the same name owns the same jobs.

    ROLE: a viewer may look; a user may submit and cancel jobs, which run as programs on the daemon's machine; an
    operator may do everything. A client only works for the job whose token it has; an agent lends a machine, and
    clients of jobs run there with its key.
    """
    _make(role, name, jobs, config)


def _make(role: str, name: str, jobs: int | None, config: Path | None) -> None:
    from autosched.daemon.access import keyring
    from autosched.protocol.roles import Role

    made, path = keyring.make(folder_of(config), Role(role), name, jobs)
    data(made.line())
    say(f"It is in {path} too. Its owner writes it to ~/.config/autosched/key (chmod 600),")
    say("or into AUTOSCHED_KEY. To withdraw it:  autosched key revoke " + made.id)


@key.command(name="list")
@_config
@listing_option
def list_(config: Path | None, style: str) -> None:
    """List the valid keys, the oldest first, without their secrets."""
    from autosched.daemon.access import keyring

    folder = folder_of(config)
    found = keyring.kept(folder)
    if not found and style in ("table", "wide"):
        return say(f"There are no keys in {folder}. Make one:  autosched key new user")
    show(style, "keys", KEYS, found, id=lambda one: one.id)


@key.command()
@click.argument("id", metavar="KEY")
@_config
def revoke(id: str, config: Path | None) -> None:
    """Revoke a key; its connections are closed within seconds."""
    from autosched.daemon.access import keyring

    gone = keyring.revoke(folder_of(config), id)
    say(f"The {gone.role} key {gone.id} is not valid any more.")


@click.group(cls=Group)
def token() -> None:
    """Another name of `key`."""


@token.command()
@click.argument("name")
@click.option("--role", type=ROLES, required=True, help="What its holder may do.")
@click.option(
    "--quota", default="", help="jobs=N: maximum number of active jobs. share=1: each user counts alike, as they do."
)
@_config
def add(name: str, role: str, quota: str, config: Path | None) -> None:
    """Make a key and print it, as `key new` does."""
    _make(role, name, _jobs(quota), config)


def _jobs(quota: str) -> int | None:
    """The number of jobs that a quota like "share=1 jobs=50" allows."""
    said = dict(word.partition("=")[::2] for word in quota.split())
    jobs, share = said.pop("jobs", ""), said.pop("share", "1")
    if said or share != "1" or not (jobs == "" or (jobs.isdecimal() and 0 < int(jobs) <= JOBS_MAX)):
        raise click.BadParameter(
            f"{quota!r} is no quota. Write jobs=N. Users have equal shares, so that share=1 is the only share"
        )
    return int(jobs) if jobs else None
