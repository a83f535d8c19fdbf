"""Pages for users and operators: each command exists, with its options and arguments."""

import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest

from autosched import config
from autosched.cli.command_table import VISIBLE, autosched
from autosched.cli.tune import tune
from autosched.model import DEFAULT_BACKEND

ROOT = Path(__file__).parents[2]
PAGES = [
    "README.md",
    "docs/deploying.md",
    "docs/users.md",
    "docs/operators.md",
    "docs/fleet.md",
    "docs/boards.md",
    "docs/gpus.md",
    "docs/collecting.md",
    "docs/command-line.md",
    "docs/policies.md",
]


def commands(page: str) -> list[list[str]]:
    """Returns the commands of a page, as words."""
    text = (ROOT / page).read_text()
    lines = re.findall(r"^    (?:\S*/)?(autosched .+)$", text, re.MULTILINE)
    return [shlex.split(line, comments=True)[1:] for line in lines]


def understand(group: click.Group, words: list[str], parent: click.Context | None = None) -> None:
    """Parses without running. Raises click.UsageError."""
    context = group.make_context(group.name, list(words), parent=parent)
    if group.invoke_without_command and not [*context._protected_args, *context.args]:
        return
    name, command, rest = group.resolve_command(context, [*context._protected_args, *context.args])
    assert command is not None
    if isinstance(command, click.Group):
        understand(command, rest, context)
    else:
        command.make_context(name, rest, parent=context)


@pytest.mark.parametrize("page", PAGES)
def test_what_is_to_be_typed_can_be_typed(page: str) -> None:
    told = commands(page)
    assert len(told) > 10 or page != "docs/users.md"
    for words in told:
        try:
            understand(autosched, words)
        except click.UsageError as error:
            pytest.fail(f"autosched {shlex.join(words)}: {error.format_message()}")


def test_a_mistyped_option_would_be_noticed() -> None:
    with pytest.raises(click.UsageError):
        understand(autosched, ["tune", "net.onnx", "--trails", "64"])
    with pytest.raises(click.UsageError):
        understand(autosched, ["key", "new", "owner"])


def test_the_users_page_tells_every_setting_of_a_job_that_users_need() -> None:
    text = (ROOT / "docs/users.md").read_text()
    table = dict(re.findall(r"^\| `(--[a-z-]+) [A-Z]+` \| .* \| (.+) \|$", text, re.MULTILINE))

    options = {name for option in tune.params for name in option.opts if name.startswith("--")}
    assert table.keys() <= options
    elsewhere = {
        "--shape",
        "--option",
        "--priority",
        "--deadline",
        "--label",
        "--output",
        "--detach",
        "--policy",
        "--goal",
        "--until-faster",
        "--target-ms",
        "--improve-by",
        "--fresh",
        "--unverified",
        "--zero-shot",
    }
    assert options - table.keys() == elsewhere
    assert table["--backend"] == f"`{DEFAULT_BACKEND}`"
    assert all(
        re.search(rf"{name}[` ]", text)
        for name in (
            "--priority", "--deadline", "--shape", "--until-faster", "--target-ms", "--improve-by", "--fresh",
            "--zero-shot", "--unverified",
        )
    )  # fmt: skip


def test_settings_of_the_operators_page_are_settings() -> None:
    blocks = re.findall(r"^```toml\n(.+?)^```$", (ROOT / "docs/operators.md").read_text(), re.DOTALL | re.MULTILINE)
    assert blocks
    for block in blocks:
        assert tomllib.loads(block)
        config.parse(block, "docs/operators.md")


def test_every_command_is_told_somewhere() -> None:
    told = "".join((ROOT / page).read_text() for page in (*PAGES, "docs/plugins.md"))
    assert not [name for name in VISIBLE if f"autosched {name}" not in told]
