"""Nouns of the command line, with commands of several modules as verbs: `job`, `device`, `hosts`, `daemon`, `records`,
`experiment`, `models`."""

from collections.abc import Mapping
from copy import copy
from typing import Any

import click

from autosched.cli.command_group import Group, load


class Noun(Group):
    """A group whose verbs are imported on use. Words without a verb belong to the usual verb."""

    def __init__(self, *args: Any, verbs: Mapping[str, str], usual: str, alone: str = "", **more: Any) -> None:
        """`verbs`: verb -> place of its command. `usual`: verb that is put before words without one. `alone`: verb
        without any words."""
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
        """Put the usual verb before words that have none."""
        if args[:1] and (args[0] in ("-h", "--help") or args[0] in self.verbs or _near(args[0], self.verbs)):
            return super().parse_args(ctx, args)
        usual = self.alone if self.alone and (not args or args[0].startswith("-")) else self.usual
        return super().parse_args(ctx, [usual, *args] if args or self.alone else args)


def _near(word: str, verbs: Mapping[str, str]) -> bool:
    """Whether a word is a mistyped verb rather than a job or a unit."""
    from difflib import get_close_matches

    return word.isalpha() and bool(get_close_matches(word, verbs, 1))


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
    """Show one job and its tasks, or change jobs. `autosched job 12` is `autosched job show 12`."""


@click.group(
    cls=Noun,
    usual="explain",
    alone="list",
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
    """List lanes and devices, show failures of one, take one out of use. `autosched device` lists them, `autosched
    device cpu0` explains the state of one."""


@click.group(
    cls=Noun,
    usual="show",
    alone="list",
    verbs={
        "list": "hosts:list_",
        "show": "hosts:show_",
        "drain": "hosts:drain",
        "undrain": "hosts:undrain",
        "forget": "hosts:forget",
        "add": "hosts:add",
        "scale": "hosts:scale",
    },
)
def hosts() -> None:
    """List the machines that agents lend to the daemon, and take one out of use. `autosched hosts` lists them."""


@click.group(
    cls=Noun,
    usual="status",
    alone="status",
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
    """Run, stop, pause and inspect the daemon. Without a verb, print whether one runs."""


@click.group(
    cls=Noun,
    usual="list",
    alone="list",
    verbs={
        "list": "records:list_",
        "best": "records:best",
        "show": "records:show_",
        "stats": "records:stats",
        "export": "records_files:export",
        "import": "records_files:import_",
        "merge": "records_files:merge",
        "prune": "records_files:prune",
        "forget": "records_files:forget",
        "upgrade": "records_upgrade:upgrade",
    },
)
def records() -> None:
    """List, share and upgrade the measurements of all jobs.

    The record store keeps the best schedules of each operator, by device, compiler and backend, and offers them to
    later jobs. See the page for users, "Known schedules".
    """


@click.group(
    cls=Noun,
    usual="status",
    alone="status",
    verbs={
        "check": "experiment:check",
        "run": "experiment:run",
        "status": "experiment:status",
        "results": "experiment:results",
        "stop": "experiment:stop",
    },
)
def experiment() -> None:
    """Run all combinations of lists of models, settings and policies, and get one table of them.

    The page docs/experiments.md explains the file.
    """


@click.group(
    cls=Noun,
    usual="show",
    alone="list",
    verbs={"list": "models:list_", "show": "models:show_", "train": "models:train"},
)
def models() -> None:
    """List and train models that order the schedules of an operator before anything is measured. `autosched models`
    lists them."""
