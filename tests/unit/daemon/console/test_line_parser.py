"""Parsing of lines of the console."""

import pytest

from autosched.daemon.console import line_parser
from autosched.daemon.console.commands import COMMANDS, OPTIONS
from autosched.daemon.console.line_parser import Line
from autosched.errors import RequestError


def parsed(text: str) -> list[Line]:
    return list(line_parser.commands(text, OPTIONS))


@pytest.mark.parametrize(
    ("text", "name", "plain", "options"),
    [
        ("jobs", "jobs", (), {}),
        ("JOBS state=waiting", "jobs", ("state=waiting",), {}),
        ("jobs -j", "jobs", (), {"j": ""}),
        ("-j", "-j", (), {}),
        ("set job 14 priority +5", "set", ("job", "14", "priority", "+5"), {}),
        ("set job 14 priority -5", "set", ("job", "14", "priority", "-5"), {}),
        ("cancel 12-15 --dry-run", "cancel", ("12-15",), {"dry-run": ""}),
        ("cancel --dry-run 12,14", "cancel", ("12,14",), {"dry-run": ""}),
        ('drain x --reason "fan; dead" --deadline 10m', "drain", ("x",), {"reason": "fan; dead", "deadline": "10m"}),
        ("drain pi4-1 --reason=fan", "drain", ("pi4-1",), {"reason": "fan"}),
        ("drain pi4-1 --reason 'a fan'", "drain", ("pi4-1",), {"reason": "a fan"}),
        ("why 14 # no comments here", "explain", ("14", "#", "no", "comments", "here"), {}),
        ("monitor job=12 what=StepEnded", "monitor", ("job=12", "what=StepEnded"), {}),
        ("help drain", "help", ("drain",), {}),
        ("?", "?", (), {}),
        ("hold @resnet50 --reason ''", "hold", ("@resnet50",), {"reason": ""}),
        ("shutdown drain 5m", "shutdown", ("drain", "5m"), {}),
    ],
)  # fmt: skip
def test_a_command_is_parsed(text: str, name: str, plain: tuple[str, ...], options: dict[str, str]) -> None:
    assert parsed(text) == [Line(name, plain, options)]


@pytest.mark.parametrize(
    ("text", "names"),
    [("", []), (" ; ;; ", []), ("hold 13; release 13", ["hold", "release"]), ("jobs;devices;", ["jobs", "devices"]),
     (";queue", ["queue"]), ("info sched;jobs -j ; quit", ["status", "jobs", "quit"]),
     ("INFO;Why 2", ["status", "explain"])],
)  # fmt: skip
def test_several_commands_are_parsed(text: str, names: list[str]) -> None:
    assert [line.name for line in parsed(text)] == names


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('drain cpu0 --reason "fan', "close the quote"),
        ("drain cpu0 --why fan", "drain has no option --why; there are: --reason, --deadline"),
        ("drain cpu0 --reason", "--reason needs a value. Type: help drain"),
        ("jobs --all", "jobs has no option --all"),
    ],
)
def test_malformed_commands_name_valid_ones(text: str, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        parsed(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(("text", "seconds"), [("90", 90.0), ("5m", 300.0), ("1h30m", 5400.0), ("2d", 172_800.0)])
def test_durations_are_parsed(text: str, seconds: float) -> None:
    assert line_parser.seconds(text) == seconds


def test_malformed_durations_and_numbers_are_refused() -> None:
    with pytest.raises(RequestError, match=r"is no duration\. Write seconds or for example 45s"):
        line_parser.seconds("soon")
    with pytest.raises(RequestError, match="'many' is no whole number"):
        line_parser.number("many")


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_a_usage(name: str) -> None:
    command = COMMANDS[name]
    assert command.usage.split()[0] == name
    assert command.help
    for option, takes in command.options.items():
        assert f"--{option}{' ' if takes else ''}" in command.usage


@pytest.mark.parametrize(
    ("said", "here"),
    [
        ("there is no job 9. See:  autosched jobs", "there is no job 9. See:  jobs"),
        ("… 4 more: autosched job 12 -o json", "… 4 more: job 12 -j"),
        ("Why it waits:  autosched explain 12", "Why it waits:  explain 12"),
        ("it stops: autosched stop", "it stops: shutdown now"),
        ("make one: autosched key new user", "make one: autosched key new user"),
        ("see autosched db check", "see autosched db check"),
        ("autosched jobs-report is nothing", "autosched jobs-report is nothing"),
    ],
)
def test_hints_are_commands_of_the_console_where_it_has_them(said: str, here: str) -> None:
    assert line_parser.as_typed_here(said) == here
