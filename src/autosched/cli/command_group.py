"""A group of commands that suggests a command for a mistyped one."""

import gc
from collections.abc import Mapping
from importlib import import_module
from typing import ClassVar

import click


def load(place: str) -> click.Command:
    """Import the command at "module:name" of this package."""
    module, _, name = place.partition(":")
    command: click.Command = getattr(import_module(f"autosched.cli.{module}"), name)
    gc.enable()
    return command


class Group(click.Group):
    """Command group of `autosched` itself, and of each command with subcommands."""

    meant: ClassVar[Mapping[str, str]] = {}
    """Command names of other programs, with ours."""
    hidden_names: tuple[str, ...] = ()
    """Names that work and are not listed."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command named by the first word."""
        import difflib

        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            names = self.list_commands(ctx)
            near = difflib.get_close_matches(args[0], [*names, *self.hidden_names], 1) or [f"{names[0]} {args[0]}"] * (
                len(names) == 1
            )
            meant = self.meant.get(args[0]) or next(iter(near), "")
            hint = f"Did you mean: {ctx.command_path} {meant}" if meant else f"See what there is: {ctx.command_path} -h"
            ctx.fail(f"there is no command {args[0]!r}. {hint}")
        return super().resolve_command(ctx, args)
