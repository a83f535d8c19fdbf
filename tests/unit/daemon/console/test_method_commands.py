"""Commands of the console that are generated from methods."""

import asyncio

import msgspec
import pytest

from autosched import protocol as p
from autosched.daemon.console.command import Said
from autosched.daemon.console.commands import ALL, COMMANDS, OPTIONS
from autosched.daemon.console.line_parser import commands
from autosched.errors import RequestError


def said(text: str, answer: msgspec.Struct) -> tuple[Said, p.Method]:
    """Returns the answer to a line, and the method that was called."""
    asked: list[p.Method] = []

    async def ask(method: p.Method) -> msgspec.Struct:
        asked.append(method)
        return answer

    (line,) = commands(text, OPTIONS)
    return asyncio.run(ALL[line.name].run(ask, line)), asked[0]


def test_each_method_of_plain_values_is_a_command() -> None:
    left_out = {name for name in p.USER_METHODS if name not in ALL}
    assert left_out == {"heartbeat", "put_blob", "get_blob", "submit"}


@pytest.mark.parametrize(
    ("text", "method"),
    [
        ("get_job 7", p.GetJob(job=7)),
        ("get_job 7 --wait 5s", p.GetJob(job=7, wait_s=5.0)),
        ("list_idle 1h", p.ListIdle(last_s=3_600.0)),
        ('drain_unit cpu0 "new fan" --deadline 5m', p.DrainUnit(unit="cpu0", reason="new fan", deadline_s=300.0)),
        ("hold_job 7 --reason lunch", p.HoldJob(job=7, reason="lunch")),
        ("shutdown --drain 90", None),
    ],
)
def test_words_and_options_become_fields(text: str, method: p.Method | None) -> None:
    if method is not None:
        assert said(text, p.Done())[1] == method
    else:
        with pytest.raises(RequestError, match="shutdown has no option"):
            said(text, p.Done())  # written by hand, with its own text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("get_job", "get_job takes JOB. Type: help get_job"),
        ("get_job seven", "job: expected a whole number"),
        ("get_job 7 --colour red", "get_job has no option --colour; there are: --since, --wait"),
        ("list_idle soon", "soon"),
        ("pause now", "pause takes no words"),
    ],
)
def test_invalid_values_are_refused_with_valid_ones(text: str, why: str) -> None:
    with pytest.raises(RequestError, match=why):
        said(text, p.Done())


def test_an_answer_is_a_line_for_each_field_and_entry() -> None:
    answer = p.NewsList((p.RecentEvent("12:00", "odd"), p.RecentEvent("12:01", "odder")))
    found, _ = said("list_news cpu0", answer)
    assert [line.partition(":")[0] for line in found.lines] == ["news", "news"]
    assert '"odder"' in found.lines[1]
    assert (found.key, found.value) == ("list_news", answer)


def test_an_empty_answer_has_the_text_of_its_command() -> None:
    assert said("resume", p.Done())[0].first == "steps start again"
    assert said("forgive_blocked 3", p.Done())[0].first == "done"


def test_usage_and_help_come_from_the_method() -> None:
    command = ALL["get_job"]
    assert command.usage == "get_job JOB [--since N] [--wait TIME]"
    assert command.help
    assert COMMANDS["pause"].usage == "pause [--reason TEXT]"
