"""Common properties of all commands: formats, exit codes, errors with advice, optional hints."""

import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import click
import pytest
from msgspec import Struct
from msgspec.structs import replace

from autosched import errors
from autosched.cli import output
from autosched.cli.command_table import FLAT, GROUPS, VISIBLE, Commands, autosched
from autosched.cli.nouns import Noun
from autosched.cli.wait import TIMED_OUT
from autosched.errors import NotFound, Refused
from autosched.model import JobSpec
from autosched.protocol import (
    AuditEntry,
    AuditList,
    CancelJob,
    Done,
    Figures,
    GetFigures,
    GetJob,
    HoldJob,
    JobList,
    ListAudit,
    ListDevices,
    ListJobs,
    ListQueues,
    ListStalls,
    Method,
    PreviousSettings,
    QueueList,
    QueueView,
    Reload,
    Reloaded,
    SetJob,
    SettingChange,
    Stall,
    StallList,
    Submit,
    Submitted,
    UnitList,
    UnitView,
)
from deadlines import DEADLINE_S
from fake import Said
from samples import job_view

VIEWS = [replace(job_view(), job=number, name=f"net{number % 2}", tasks=()) for number in (1, 2, 3)]
UNITS = (UnitView("host/0", ("host",), (0,), "free"), UnitView("cpu0", ("device:cpu",), (1,), "free"))
LISTS = ("jobs", "devices", "queue", "audit", "slowlog")
FIRST_IDS = {"jobs": "1", "devices": "host/0", "queue": "host", "audit": "1", "slowlog": "1"}


class Fake:
    """A daemon with three jobs, which stores changes."""

    def __init__(self) -> None:
        self.changed: list[Method] = []
        self.views = {view.job: view for view in VIEWS}

    async def answer(self, method: Method) -> Struct:
        match method:
            case ListJobs(limit=limit, name=name, before=before):
                there = [v for v in self.views.values() if name in ("", v.name) and (not before or v.job < before)]
                return JobList(tuple(there[-limit:]))
            case ListDevices():
                return UnitList(UNITS)
            case ListQueues():
                return QueueList((QueueView("host", 1, 0, 0, ()),))
            case ListAudit():
                return AuditList(
                    (AuditEntry(1, "2026-01-01T00:00:00", "uid 1", "operator", "", "pause", "{}", "done"),)
                )
            case ListStalls():
                return StallList((Stall(1, "2026-01-01T00:00:00", 0.2, "f a/b.py:1"),))
            case GetFigures():
                return Figures({"sched": {"jobs_running": 3}})
            case GetJob(job=job):
                if job not in self.views:
                    raise NotFound(f"there is no job {job}; the last one is 3")
                return self.views[job]
            case HoldJob(job=2):
                raise Refused("job 2 belongs to uid 7, and you are uid 1: ask an operator")
            case Reload():
                self.changed.append(method)
                return Reloaded("a.toml", (SettingChange("limits.jobs_active_max", "1", "2", False),), method.timeout_s)
            case Submit():
                self.changed.append(method)
                return Submitted(4)
            case SetJob():
                self.changed.append(method)
                return PreviousSettings(0, None)
            case _:
                self.changed.append(method)
                return Done()


@pytest.fixture
def fake() -> Fake:
    return Fake()


# Formats --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LISTS)
def test_each_list_has_each_format(name: str, command: Callable[..., Said]) -> None:
    code, table, _ = command(name)
    assert code == 0
    assert max(map(len, table.splitlines())) <= 80
    _, wide, _ = command(name, "-o", "wide")
    assert len(wide.splitlines()[0]) >= len(table.splitlines()[0].rstrip())
    document = json.loads(command(name, "-o", "json")[1])
    assert document["schema"] == 1
    (rows,) = (value for key, value in document.items() if key != "schema")
    assert [json.loads(line) for line in command(name, "-o", "jsonl")[1].splitlines()] == rows
    head, *lines = csv.reader(io.StringIO(command(name, "-o", "csv")[1]))
    assert [len(line) for line in lines] == [len(head)] * len(rows)
    ids = command(name, "-o", "id")[1].split()
    assert (ids[0], len(ids)) == (FIRST_IDS[name], len(rows))


@pytest.mark.parametrize(
    ("said", "shown"), [("json", "{"), ("jsonl", "{"), ("csv", "JOB,"), ("id", "1\n"), ("wide", " ")]
)
def test_the_format_comes_from_the_environment(
    said: str, shown: str, command: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOSCHED_OUTPUT", said)
    assert command("jobs")[1].startswith(shown)
    assert command("job", "1")[0] == 0  # which has fewer formats


def test_an_unknown_format_is_refused(command: Callable[..., Said], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOSCHED_OUTPUT", "xml")
    code, _, said = command("jobs")
    assert code == 2
    assert "AUTOSCHED_OUTPUT is 'xml'; choose from table, wide, json, jsonl, csv, id, or unset it" in said


def test_hints_can_be_switched_off_but_errors_cannot(
    command: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        assert command("-q", "pause")[2] == ""
        code, _, said = command("-q", "job", "9")
        assert (code, said) == (4, "autosched: there is no job 9; the last one is 3\n")
        assert command("--color", "jobs")[1].startswith("\x1b[1m")
        assert not command("--no-color", "jobs")[1].startswith("\x1b")
    finally:
        monkeypatch.setattr(output, "quiet", False)
        monkeypatch.setattr(output, "colour", None)


# Jobs by their names --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "jobs"),
    [(["1"], [1]), (["1-2"], [1, 2]), (["1,3"], [1, 3]), (["last"], [3]), (["all"], [1, 2, 3]), (["@net1"], [1, 3])],
)
def test_selectors_name_jobs(words: list[str], jobs: list[int], command: Callable[..., Said], fake: Fake) -> None:
    code, _, said = command("cancel", *words, "--dry-run")
    assert code == 0
    assert [int(line.split()[1]) for line in said.splitlines()] == jobs
    assert fake.changed == []
    assert command("cancel", *words)[0] == 0
    assert fake.changed == [CancelJob(job=job) for job in jobs]


@pytest.mark.parametrize("words", [("hold",), ("release",), ("set", "--priority", "5"), ("cancel",)])
def test_changes_of_several_jobs_have_a_dry_run(
    words: tuple[str, ...], command: Callable[..., Said], fake: Fake
) -> None:
    code, _, said = command(*words, "all", "-n")
    assert (code, len(said.splitlines()), fake.changed) == (0, 3, [])


def test_a_refusal_does_not_stop_the_other_changes(command: Callable[..., Said], fake: Fake) -> None:
    code, _, said = command("hold", "all", "--reason", "the demo")
    assert code == Refused.exit_code
    assert fake.changed == [HoldJob(job=1, reason="the demo"), HoldJob(job=3, reason="the demo")]
    assert "autosched: job 2 belongs to uid 7" in said


def test_set_prints_the_previous_value(command: Callable[..., Said], fake: Fake) -> None:
    code, _, said = command("set", "1", "--priority", "-5", "--deadline", "2h")
    assert (code, said) == (0, "job 1: priority -5, was 0; is wanted within 2h00m\n")
    assert fake.changed == [SetJob(job=1, priority=-5, deadline_s=7200.0)]


def test_reload_says_how_to_keep_a_setting(command: Callable[..., Said], fake: Fake) -> None:
    code, out, said = command("reload", "--timeout", "2m")
    assert (code, out) == (0, " limits.jobs_active_max  1 -> 2\n")
    assert said == "All of it is undone in 2m00s. Keep it:  autosched reload --confirm\n"
    assert command("reload", "--check")[2] == "Nothing is changed yet. Change it:  autosched reload --timeout 2m\n"


# Exit codes and errors ------------------------------------------------------------------------------------------------


def test_the_table_of_exit_codes_is_the_one_in_the_readme() -> None:
    codes = {
        1: errors.AutoschedError, 2: errors.RequestError, 3: errors.DaemonUnreachable, 4: errors.NotFound,
        5: errors.Refused, 6: errors.JobFailed, 7: errors.JobCancelled, 8: errors.Damaged,
    }  # fmt: skip
    assert {code: error.exit_code for code, error in codes.items()} == {code: code for code in codes}
    text = (Path(__file__).parents[3] / "docs/command-line.md").read_text()
    for code in (0, *codes, TIMED_OUT, 130):
        assert f"| {code} |" in text


@pytest.mark.parametrize(("state", "code"), [("done", 0), ("failed", 6), ("cancelled", 7), ("running", TIMED_OUT)])
def test_the_exit_code_of_wait_tells_how_a_job_ended(
    state: str, code: int, command: Callable[..., Said], fake: Fake
) -> None:
    fake.views[1] = replace(fake.views[1], state=state)
    found, _, said = command("wait", "1", "--timeout", "0")
    assert found == code
    assert bool(said) == bool(code)


NEXT = (
    "autosched ", "--", "there are", "there is", "Write ", "Name the file", "the last one is", "for example",
    "check the", "name another", "ask an operator", "choose from",
)  # fmt: skip
"""Phrases of which each error contains one: the command to type, or the valid values."""


@pytest.mark.parametrize(
    "words",
    [
        ("jbos",), ("nonsense",), ("jobs", "-o", "xml"), ("jobs", "--limit", "0"), ("job",), ("job", "99"),
        ("job", "x"),
        ("job", "all"), ("job", "@unknown"), ("cancel",), ("cancel", "9-1"), ("cancel", "7-9"), ("explain", "12 13"),
        ("drain", "cpu0"), ("drain", "cpu0", "--reason", "x", "--deadline", "soon"), ("set", "1"),
        ("set", "1", "--priority", "1000"), ("wait", "1", "--timeout", "never"), ("hold", "2"),
        ("stop", "--drain", "x"),
        ("completion", "tcsh"), ("man",), ("policy", "--goal", "luck"), ("--host", "nowhere", "jobs"),
        ("--host", "unix:/nonexistent/api.sock", "jobs"), ("tune", "missing.onnx"), ("submit",),
        ("key", "new", "king"),
        ("serve", "-c", "/nonexistent.toml"), ("run", "missing.so"),
        ("set", "1", "target="), ("reload", "--check", "--confirm"), ("reload", "--check", "--timeout", "1m"),
        ("explain", "cpu7"), ("run", "missing.so", "--check"), ("compile", "1", "-o", "/proc/nowhere/net.so"),
        ("free", "gpu7"), ("man", "/proc/nowhere"),
    ],
)  # fmt: skip
def test_an_error_says_what_failed_and_what_to_do(words: tuple[str, ...], command: Callable[..., Said]) -> None:
    code, _, said = command(*words)
    assert code in (1, 2, 3, 4, 5), "an error has an exit code"
    assert "Traceback" not in said
    assert "this is a bug" not in said, said
    assert any(hint in said for hint in NEXT), said


def commands(group: click.Group, *before: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    with click.Context(group) as ctx:
        for name in group.list_commands(ctx):
            command = group.get_command(ctx, name)
            assert command is not None
            yield (*before, name), command
            if isinstance(command, click.Group):
                yield from commands(command, *before, name)


def test_every_command_and_option_is_explained() -> None:
    assert isinstance(autosched, Commands)
    for words, command in commands(autosched):
        assert command.help, words
        for parameter in command.params:
            assert isinstance(parameter, click.Argument) or getattr(parameter, "help", None), (words, parameter.name)


def test_the_help_fits_a_terminal(command: Callable[..., Said]) -> None:
    code, out, _ = command("--help")
    lines = out.splitlines()
    assert code == 0
    assert len(lines) <= 48
    assert max(map(len, lines)) <= 80
    assert all(any(line.startswith(f"  {name} ") for line in lines) for name in VISIBLE)
    words = [about.split() for group in GROUPS.values() for _, about in group.values()]
    assert max(map(len, words)) <= 10


FORMER = [
    "tune",
    "submit",
    "attach",
    "fetch",
    "wait",
    "compile",
    "jobs",
    "job",
    "cancel",
    "explain",
    "devices",
    "device",
    "gantt",
    "plot",
    "queue",
    "set",
    "hold",
    "release",
    "pause",
    "resume",
    "reload",
    "drain",
    "undrain",
    "free",
    "top",
    "console",
    "policy",
    "status",
    "info",
    "slowlog",
    "stop",
    "sim",
    "plan",
    "audit",
    "key",
    "serve",
    "install-systemd",
    "db",
    "run",
    "evaluate",
    "model",
    "plugin",
    "doctor",
    "demo",
    "completion",
    "man",
    "token",
]
"""Commands from before nouns with verbs."""


@pytest.mark.parametrize("name", FORMER)
def test_each_old_command_still_works(name: str) -> None:
    with click.Context(autosched) as ctx:
        assert isinstance(autosched.get_command(ctx, name), click.Command)


def test_each_flat_name_is_a_verb_of_a_noun() -> None:
    with click.Context(autosched) as ctx:
        verbs = {
            place
            for noun in map(partial(autosched.get_command, ctx), ("job", "device", "daemon"))
            if isinstance(noun, Noun)
            for place in noun.verbs.values()
        }
    others = {"token": "key:token", "man": "manual:man"}
    assert {place for name, place in FLAT.items() if name not in others} <= verbs
    assert FLAT.items() >= others.items()


@pytest.mark.parametrize(
    ("words", "same"),
    [
        (("job", "12"), ("job", "show", "12")),
        (("job", "last"), ("job", "show", "last")),
        (("job", "-o", "json", "12"), ("job", "show", "-o", "json", "12")),
        (("device",), ("device", "list")),
        (("device", "-o", "json"), ("device", "list", "-o", "json")),
        (("device", "cpu0"), ("device", "explain", "cpu0")),
        (("daemon",), ("daemon", "status")),
        (("daemon", "-o", "json"), ("daemon", "status", "-o", "json")),
        (("job", "hold", "12"), ("hold", "12")),
        (("daemon", "stop"), ("stop",)),
    ],
)
def test_a_noun_without_a_verb_is_its_default_command(
    words: tuple[str, ...], same: tuple[str, ...], command: Callable[..., Said]
) -> None:
    where = ("--host", "unix:/nonexistent/api.sock")
    assert command(*where, *words) == command(*where, *same)


def test_a_mistyped_verb_is_not_taken_for_a_job(command: Callable[..., Said]) -> None:
    code, _, said = command("job", "hodl", "12")
    assert (code, "Did you mean: autosched job hold" in said) == (2, True)


# Shells and manual ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_exist_for_each_shell(shell: str, command: Callable[..., Said]) -> None:
    code, out, said = command("completion", shell)
    assert code == 0
    assert f"_AUTOSCHED_COMPLETE={shell}_complete" in out
    assert "autosched completion" in said


def test_completion_in_bash_offers_the_commands() -> None:
    program = "from autosched.cli import main; main()"
    environment = {"_AUTOSCHED_COMPLETE": "bash_complete", "COMP_WORDS": "autosched de", "COMP_CWORD": "1"}
    answer = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert answer.stdout.splitlines() == ["plain,demo", "plain,device"]


def test_every_command_has_a_manual_page(command: Callable[..., Said], tmp_path: Path) -> None:
    assert command("man", str(tmp_path / "man1"))[0] == 0
    pages = {path.name: path.read_text() for path in (tmp_path / "man1").iterdir()}
    assert {f"autosched-{name}.1" for name in VISIBLE} <= set(pages)
    assert {"autosched-job-hold.1", "autosched-device-drain.1", "autosched-daemon-stop.1"} <= set(pages)
    assert "autosched-key-new.1" in pages
    for text in pages.values():
        assert text.startswith('.TH "AUTOSCHED')
        assert all(f"\n.SH {part}\n" in text for part in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS"))
    assert "\\-\\-dry\\-run" in pages["autosched-job-cancel.1"]


def test_a_listing_imports_neither_asyncio_nor_rich() -> None:
    """Its answer must come without a noticeable start-up time."""
    program = """
import sys
from autosched.cli.nouns import Noun
from autosched.cli.command_table import run
run(["--host", "unix:/nonexistent/api.sock", "jobs"])
print([name for name in ("asyncio", "rich", "aiohttp", "uvloop", "tvm", "numpy") if name in sys.modules])
"""
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert answer.stdout.strip() == "[]"


def test_verbose_logs_requests_to_the_daemon_and_tracebacks(command: Callable[..., Said]) -> None:
    code, out, err = command("-v", "jobs", "-o", "id")
    assert (code, out.split()) == (0, ["1", "2", "3"])
    assert "list_jobs: " in err
    code, _, err = command("-v", "job", "9")
    assert code == 4
    assert "Traceback" in err
    assert err.splitlines()[-1].startswith("autosched: there is no job 9")


def test_another_target_is_another_job(command: Callable[..., Said], fake: Fake) -> None:
    spec = JobSpec(name="net1", model="0" * 64, device="pi4")
    fake.views[1] = replace(fake.views[1], spec=spec, device="pi4")
    code, _, err = command("set", "1", "target=llvm")
    assert code == 0, err
    assert fake.changed == [Submit(spec=replace(spec, target="llvm", device="cpu")), CancelJob(job=1)]
    assert "job 4 takes the place of job 1" in err
    assert command("set", "1", "target=llvm", "--priority", "3")[0] == 2
