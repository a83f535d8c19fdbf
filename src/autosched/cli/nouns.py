"""Nouns of the command line: `job`, `device`, `daemon`, `blocked`, each with its verbs beneath."""

import re
from collections.abc import Mapping
from copy import copy
from typing import Any

import click

from autosched.cli.command_group import Group, load

WORD = re.compile(r"[a-z]+")
SELECTORS = ("all", "last")
"""Words that name jobs."""


class Noun(Group):
    """A group whose verbs are imported when one is named. Without a verb, what follows belongs to the usual one."""

    def __init__(self, *args: Any, verbs: Mapping[str, str], usual: str, alone: bool = False, **more: Any) -> None:
        """`verbs`: verb -> place of its command. `alone`: the usual verb needs no words."""
        super().__init__(*args, **more)
        self.verbs, self.usual, self.alone = verbs, usual, alone

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The verbs, in order."""
        return list(self.verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command of a verb."""
        if cmd_name not in self.verbs:
            return None
        command = copy(load(self.verbs[cmd_name]))
        command.name = cmd_name
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the usual verb before what has none."""
        if not args:
            args = [self.usual] if self.alone else args
        elif args[0] not in ("-h", "--help") and args[0] not in self.verbs:
            verb = WORD.fullmatch(args[0]) and args[0] not in SELECTORS  # a verb that was mistyped is told of
            args = args if verb else [self.usual, *args]
        return super().parse_args(ctx, args)


@click.group(
    cls=Noun,
    usual="show",
    verbs={
        "show": "listings:job",
        "explain": "listings:explain",
        "plot": "plot:plot",
        "wait": "wait:wait",
        "attach": "tune:attach",
        "fetch": "fetch:fetch",
        "compile": "tune:compile",
        "set": "operations:set",
        "hold": "operations:hold",
        "release": "operations:release",
        "cancel": "listings:cancel",
    },
)
def job() -> None:
    """Show one job and its tasks, or do something with jobs. `autosched job 12` is `autosched job show 12`."""


@click.group(
    cls=Noun,
    usual="list",
    alone=True,
    verbs={
        "list": "listings:devices",
        "log": "device:log",
        "explain": "listings:explain",
        "drain": "operations:drain",
        "undrain": "operations:undrain",
        "free": "operations:free",
    },
)
def device() -> None:
    """List lanes and devices, see what went wrong on one, take one out of use. Without a verb it lists them."""


@click.group(
    cls=Noun,
    usual="status",
    alone=True,
    verbs={
        "status": "listings:status",
        "serve": "serve:serve",
        "stop": "listings:stop",
        "pause": "operations:pause",
        "resume": "operations:resume",
        "reload": "operations:reload",
        "info": "listings:info",
        "slowlog": "listings:slowlog",
        "install": "systemd:install",
    },
)
def daemon() -> None:
    """Run, stop, pause and look into the daemon. Without a verb it says whether one runs."""
