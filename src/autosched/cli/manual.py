"""Shell completions and manual pages, generated from the command line itself."""

from collections.abc import Iterator
from pathlib import Path

import click

from autosched.cli.output import data, say
from autosched.errors import RequestError
from autosched.version import __version__

SHELLS = {
    "bash": 'eval "$(autosched completion bash)"  in ~/.bashrc',
    "zsh": 'eval "$(autosched completion zsh)"  in ~/.zshrc',
    "fish": "autosched completion fish > ~/.config/fish/completions/autosched.fish",
}


@click.command()
@click.argument("shell", type=click.Choice(list(SHELLS)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that makes a shell complete commands and options."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    made = kind(ctx.find_root().command, {}, "autosched", "_AUTOSCHED_COMPLETE")
    data(made.source_template % made.source_vars())  # source() would ask the shell for its version first
    say(f"# To have it always: {SHELLS[shell]}")


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), metavar="DIR")
@click.pass_context
def man(ctx: click.Context, folder: Path) -> None:
    """Write a manual page for each command into DIR, for example ~/.local/share/man/man1."""
    root = ctx.find_root()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        pages = list(_pages(root.command, "autosched", None))
        for name, text in pages:
            (folder / f"{name}.1").write_text(text, encoding="utf-8")
    except OSError as error:
        raise RequestError(f"no page can be written to {folder} ({error.strerror}); name another folder") from None
    say(f"{len(pages)} pages are in {folder}. Read one:  man {folder}/autosched.1")


def _pages(command: click.Command, name: str, parent: click.Context | None) -> Iterator[tuple[str, str]]:
    """Name and text of the pages of a command and its subcommands."""
    with click.Context(command, info_name=name.rpartition("-")[2] if parent else name, parent=parent) as ctx:
        yield name, "\n".join(_page(command, name, ctx)) + "\n"
        for each, below in _below(command, ctx):
            yield from _pages(below, f"{name}-{each}", ctx)


def _page(command: click.Command, name: str, ctx: click.Context) -> Iterator[str]:
    text = (command.help or "").replace("\b", "").strip()
    yield f'.TH "{name.upper()}" "1" "" "autosched {__version__}" "autosched"'
    yield from (".SH NAME", f"{name} \\- {_roff(text.partition(chr(10))[0])}")
    yield from (".SH SYNOPSIS", f".B {ctx.command_path}", _roff(" ".join(command.collect_usage_pieces(ctx))))
    yield ".SH DESCRIPTION"
    for paragraph in text.split("\n\n"):
        yield from (".PP", _roff(" ".join(paragraph.split())))
    records = [
        record for parameter in command.get_params(ctx) if (record := parameter.get_help_record(ctx)) is not None
    ]
    yield ".SH OPTIONS"
    for option, words in records:
        yield from (".TP", f".B {_roff(option)}", _roff(words))
    if isinstance(command, click.Group):
        yield ".SH COMMANDS"
    for each, below in _below(command, ctx):
        yield from (".TP", f".BR {name}-{each} (1)", _roff(below.get_short_help_str(100)))


def _below(command: click.Command, ctx: click.Context) -> Iterator[tuple[str, click.Command]]:
    """The commands of a group, by name."""
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            if (below := command.get_command(ctx, name)) is not None and not below.hidden:
                yield name, below


def _roff(text: str) -> str:
    """Escape characters that have a meaning in roff."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
