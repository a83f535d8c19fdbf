"""`autosched plugin`: write, list, check and debug backends."""

import asyncio
import difflib
import os
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autosched import backend, formatting
from autosched.cli.command_group import Group
from autosched.cli.output import data, document, document_option, say, table
from autosched.cli.tune import options_of
from autosched.errors import AutoschedError, NotFound, RequestError
from autosched.model import JobSpec

if TYPE_CHECKING:
    from autosched.conformance.check_runner import CheckResult
    from autosched.conformance.installed_backends import Plugin

TRIALS = 16
OPTION_CHARS = 74
"""Characters of a line of an option's help."""
option_option = click.option(
    "--option", "options", multiple=True, callback=options_of, metavar="KEY=VALUE",
    help="Option of the backend; repeatable.",
)  # fmt: skip
model_option = click.option(
    "--model",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Model to tune. Default: the backend's example.",
)
target_option = click.option(
    "-t", "--target", default="auto", show_default=True, help="TVM target, for backends on TVM."
)


@click.group(cls=Group)
def plugin() -> None:
    """Create a new backend; list, check and debug installed ones."""


@plugin.command("list")
@click.argument("name", required=False)
@document_option
def list_(name: str | None, style: str) -> None:
    """List the installed backends, and why one cannot be used; with NAME, list the options of one.

    Each backend is imported in a separate process.
    """
    from autosched.conformance import installed_backends

    if name is not None:
        found = [asyncio.run(installed_backends.described(name))]
        if style == "table":
            return _say_options(found[0])
    else:
        found = asyncio.run(installed_backends.installed())
    if style == "json":
        return document("plugins", found)
    rows = [(p.name, f"{p.package} {p.version}", p.api or "-", p.about if not p.trouble else "BROKEN") for p in found]
    data(table(("BACKEND", "PACKAGE", "API", "WHAT IT IS"), rows))
    for one in found:
        if one.trouble:
            data(f" ! {one.name}: {one.trouble}")
    return None


def _say_options(one: "Plugin") -> None:
    """Print the options of a backend, each with its default and meaning."""
    if one.trouble:
        raise RequestError(f"backend {one.name} cannot be used: {one.trouble}")
    data(f" {one.name}: {one.about}" if one.about else f" {one.name}")
    if not one.option_help:
        data(" It has no options.")
    for option in one.option_help:
        default = f"={option.default}" if option.default else ", which must be given"
        data(f" --option {option.name}{default}")
        for line in textwrap.wrap(option.text, OPTION_CHARS):
            data(f"     {line}")


@plugin.command()
@click.argument("name")
@click.option(
    "--into", type=click.Path(file_okay=False, path_type=Path), default=Path(), help="Folder in which to write it."
)
def new(name: str, into: Path) -> None:
    """Create a working package for a new backend: autosched-backend-NAME."""
    from autosched.conformance import scaffold

    folder = scaffold.create(name, into)
    data(str(folder))
    say(f" Next:  cd {folder} && pip install -e '.[test]' && pytest\n        autosched plugin check {name}")


@plugin.command()
@click.argument("name")
@model_option
@option_option
@target_option
@click.option("--only", "only", multiple=True, metavar="CHECK", help="Only this check; repeatable.")
@click.option("--in-process", is_flag=True, help="Run the checks in this process, where a debugger can follow.")
@document_option
def check(
    name: str, model: Path | None, options: dict[str, Any], target: str, only: tuple[str, ...], in_process: bool,
    style: str,
) -> int:  # fmt: skip
    """Run the conformance suite and print what is broken, where, and what to do. Exit code 1: something is broken."""
    from autosched.conformance.check_runner import CHECKS

    backend.check_name(name)
    for wanted in only:
        if wanted not in CHECKS:
            near = difflib.get_close_matches(wanted, CHECKS, 1)
            hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(CHECKS)}"
            raise NotFound(f"there is no check {wanted!r}; {hint}")
    verdicts, checks = [], only or tuple(CHECKS)
    for verdict in _verdicts(name, model, options, target, checks, in_process):
        verdicts.append(verdict)
        if style == "table":
            data("\n".join(f" {line}" for line in verdict.lines()))
    if style == "json":
        document("verdicts", verdicts)
    count = {state: sum(verdict.state == state for verdict in verdicts) for state in ("ok", "broken", "n/a")}
    if style == "table":
        rest = "; the rest was not checked" if len(verdicts) < len(checks) else ""
        data(f" {name}: {count['ok']} kept, {count['broken']} broken, {count['n/a']} not applicable{rest}")
    return 1 if count["broken"] else 0


def _verdicts(
    name: str, model: Path | None, options: dict[str, Any], target: str, wanted: tuple[str, ...], in_process: bool
) -> "Iterator[CheckResult]":
    from autosched.conformance.backend_harness import Subject
    from autosched.conformance.check_runner import Runner
    from autosched.conformance.contract import model_file

    with tempfile.TemporaryDirectory(prefix="autosched-check-") as folder:
        path = model_file(None, model, Path(folder)) if model else _example(name, Path(folder))
        entry = backend.available()[name].value
        subject = Subject(entry=entry, model=str(path), options=options, target=target)
        with Runner(subject, isolated=not in_process) as runner:
            for check in wanted:
                yield runner.check(check)
                if runner.stopped_by:
                    return


def _example(name: str, folder: Path) -> Path:
    """The backend's own example. Imports it."""
    from autosched.conformance.contract import model_file

    return model_file(backend.load(name), None, folder)


@plugin.command()
@click.argument("name")
@model_option
@option_option
@target_option
@click.option(
    "--stage",
    type=click.Choice(("import", "select", "build", "profile", "update", "compile", "evaluate")),
    help="Only this stage, and those before it.",
)
@click.option(
    "--trials", type=click.IntRange(min=1), default=TRIALS, show_default=True, help="Number of trials of the whole job."
)
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True, help="Random seed.")
@click.option("--pdb", "debugged", is_flag=True, help="Call the stage under Python's debugger.")
def run(
    name: str, model: Path | None, options: dict[str, Any], target: str, stage: str | None, trials: int, seed: int,
    debugged: bool,
) -> None:  # fmt: skip
    """Run a small job in this process, or the first step of one stage (and the stages before it)."""
    from autosched.conformance.local_job import LocalJob, of_use, plainly, tidy
    from autosched.simple.child_process import DEBUG, STOP

    if debugged:
        os.environ[DEBUG] = STOP
    loaded = backend.load(name)
    folder, left = Path(tempfile.mkdtemp(prefix="autosched-run-")), None
    try:
        path = model.absolute() if model else _example(name, folder)
        spec = JobSpec(
            name=path.stem[:100], model="0" * 64, file=path.name, backend=name, target=target, trials=trials, seed=seed,
            options=options,
        )  # fmt: skip
        trial = LocalJob(loaded, spec, path, folder / "job", lambda line: say(f" {line}"))
        trial.run(stage or "", _under_pdb if debugged else plainly)
        left = of_use(folder, stage or "")
    except AutoschedError:
        if left := of_use(folder, None):
            say(f" Its files are in {left}")
        raise
    finally:
        tidy(folder, left)
    if trial.evaluation is not None:
        from autosched.cli.result_summary import evaluation

        for line in evaluation(trial.evaluation):
            data(line)
    if stage:
        data(f" {formatting.count(len(trial.records), 'record')}" + (f"; files in {left}" if left else ""))
    else:
        data(f" results in {left}" if left else " it published no file")


def _under_pdb(work: Callable[[], bool]) -> bool:
    """Stop in the debugger at the first line of the stage, and again where it raises."""
    import pdb

    try:
        ended = pdb.runcall(work)
    except (Exception, SystemExit) as error:
        pdb.post_mortem(error.__traceback__)
        raise
    if ended is None:  # the user has left the debugger
        raise KeyboardInterrupt
    return True
