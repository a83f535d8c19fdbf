"""The unchanged package of `autosched plugin new` passes all checks."""

import sys

import click
import pytest

from autosched.cli.command_table import autosched
from autosched.conformance import BackendContract, scaffold

sys.path.append(str(scaffold.TEMPLATE))

from autosched_backend_mytuner import MytunerBackend

pytestmark = pytest.mark.slow

COMMANDS = [
    line.partition("#")[0].split()[1:]
    for line in (scaffold.TEMPLATE / "README.md").read_text().splitlines()
    if line.startswith("    autosched ")
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_the_commands_of_the_scaffolds_readme_are_valid(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(scaffold.TEMPLATE)
    command: click.Command | None = autosched
    while isinstance(command, click.Group):
        _, command, words = command.resolve_command(click.Context(command), words)
    assert command is not None
    command.make_context(command.name, list(words))  # raises the error that the user would see


def test_the_scaffolds_readme_has_commands() -> None:
    assert len(COMMANDS) >= 5


class TestTemplate(BackendContract):
    backend = MytunerBackend
    model = b'{"short": 200}'
    options = {"repeat": 1}
    count = 2
    rounds = 3
    kill_s = 20.0  # this machine may be busy
