"""The table of commands, and the boundary where every error becomes a message and an exit code."""

import errno
import os
import sys
from collections.abc import Callable, Sequence

import click

from autosched.cli import output
from autosched.cli.command_group import Group, load
from autosched.cli.output import INTERRUPTED, complain
from autosched.errors import AutoschedError
from autosched.version import __version__

GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "Tune": {
        "tune": ("tune:tune", "make a network faster, wait, and check the result"),
        "submit": ("tune:submit", "hand over networks and return at once"),
        "attach": ("tune:attach", "follow a job to its end, fetch its results"),
        "fetch": ("fetch:fetch", "fetch the present results of a running job"),
        "run": ("module:run", "run a compiled network once"),
        "evaluate": ("module:evaluate", "measure a compiled network"),
        "gate": ("gate:gate", "check that a network has not become slower"),
        "export": ("export:export", "pack a compiled network for where it runs"),
        "experiment": ("nouns:experiment", "many combinations: check, run, status, results, stop"),
        "collect": ("collect:collect", "tune tasks of many networks before a user needs them"),
        "demo": ("demo:demo", "see autosched at work, in minutes"),
    },
    "Watch": {
        "jobs": ("listings:jobs", "list jobs"),
        "job": ("nouns:job", "one job: show, explain, wait, set, hold, release, cancel"),
        "top": ("top:top", "watch devices, jobs and latencies live"),
        "queue": ("listings:queue", "list waiting tasks in scheduling order"),
        "gantt": ("gantt:show", "show the use of devices over time"),
        "plot": ("plot:plot", "plot a job's best latency over time"),
    },
    "Operate": {
        "device": ("nouns:device", "devices: list, log, explain, drain, undrain, free"),
        "hosts": ("nouns:hosts", "other machines: list, show, add, drain, undrain, forget, scale"),
        "policy": ("policy:policy", "show or choose the scheduling policy"),
        "blocked": ("blocked:blocked", "candidates blocked after failures: list, forgive"),
        "audit": ("audit:audit", "list commands that changed something"),
        "console": ("console:console", "type commands to the daemon itself"),
    },
    "Daemon and data": {
        "daemon": ("nouns:daemon", "serve, status, stop, pause, resume, reload, info, install"),
        "agent": ("agent:agent", "lend this machine to a daemon on another one"),
        "board": ("board:board", "run a TVM RPC server, on the board itself; forget"),
        "key": ("key:key", "keys of users on other machines: new, list, revoke"),
        "records": ("nouns:records", "known schedules: list, best, show, export, import, upgrade"),
        "models": ("nouns:models", "models that order schedules: list, show, train"),
        "db": ("db:db", "the database: check, backup, restore, upgrade, prune"),
    },
    "Develop": {
        "doctor": ("doctor:doctor", "check this machine"),
        "model": ("model:model", "list the tasks of a network"),
        "plugin": ("plugin:plugin", "backends: list, new, check, run"),
        "sim": ("sim:sim", "simulate the scheduler on known loads"),
        "plan": ("what_if:plan", "predict recorded jobs with more devices"),
        "completion": ("manual:completion", "completion of commands for your shell"),
    },
}
"""Commands by subject: name -> place, and purpose in at most ten words."""
FLAT = {
    "cancel": "listings:cancel", "compile": "tune:compile", "devices": "listings:devices", "drain": "operations:drain",
    "explain": "listings:explain", "man": "manual:man",
    "free": "operations:free", "hold": "operations:hold", "info": "listings:info", "install-systemd": "systemd:install",
    "pause": "operations:pause", "release": "operations:release",
    "reload": "operations:reload",
    "resume": "operations:resume", "serve": "serve:serve", "set": "operations:set", "slowlog": "listings:slowlog",
    "status": "listings:status", "stop": "listings:stop", "token": "key:token", "undrain": "operations:undrain",
    "wait": "wait:wait", "why": "listings:explain",
}  # fmt: skip
"""Verbs without their noun, and commands for packagers. They work, and are not listed."""
VISIBLE = {name: place for group in GROUPS.values() for name, (place, _) in group.items()}
COMMANDS = VISIBLE | FLAT
"""All names that work."""
MEANT = {"list": "jobs", "ls": "jobs", "ps": "jobs", "log": "device log UNIT"}
"""Command names of other programs, with ours."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


class Commands(Group):
    """A group whose commands are imported on use."""

    meant = MEANT
    hidden_names = tuple(FLAT)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the commands by subject."""
        return list(VISIBLE)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of a command."""
        return load(COMMANDS[cmd_name]) if cmd_name in COMMANDS else None

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by subject, one line each, so that all fit a terminal."""
        about, _, steps = (self.help or "").partition("\n\n")
        lines = [f"Usage: {ctx.command_path} [OPTIONS] COMMAND [ARGS]...", "", about, steps.strip()]
        coloured = output.colours()

        def command(name: str) -> str:
            return click.style(f"{name:11}", fg="cyan") if coloured else f"{name:11}"

        for group, commands in GROUPS.items():
            lines.append(output.bold(group))
            lines += [f"  {command(name)} {words}" for name, (_, words) in commands.items()]
        lines += [
            output.bold("Options"),
            "  --host ADDRESS (the daemon), -q (less), -v (more), --no-color, --version",
            f"What a command does, and its options: {ctx.command_path} COMMAND -h",
        ]
        formatter.write("\n".join(lines) + "\n")


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--host",
    metavar="ADDRESS",
    envvar="AUTOSCHED_HOST",
    help="The daemon: unix:/path/to/socket or tcp://HOST:PORT or tls://HOST:PORT. Default: this user's own daemon.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print results only: no hints, no progress. Errors stay.")
@click.option("-v", "--verbose", is_flag=True, help="Print calls to the daemon, and the origin of errors.")
@click.option("--color/--no-color", "colour", default=None, help="Use colours. Default: on terminals, unless NO_COLOR.")
@click.version_option(__version__, prog_name="autosched")
@click.pass_context
def autosched(ctx: click.Context, host: str | None, quiet: bool, verbose: bool, colour: bool | None) -> None:
    """Tune neural networks: many at once, and none disturbs another's measurements.

    First steps: `autosched doctor`, `autosched demo`, `autosched tune MODEL.onnx`.
    """
    ctx.obj = host
    output.quiet, output.verbose, output.colour = quiet, verbose, colour


def run(words: Sequence[str]) -> int:
    """Run one command; returns the exit code."""
    code = _told(lambda: autosched.main(list(words), prog_name="autosched", standalone_mode=False))
    return _told(sys.stdout.flush) or code


def _told(act: Callable[[], object]) -> int:
    """Run a function and report its error; returns the exit code."""
    try:
        code = act()
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return 2
    except click.Abort:
        complain("\nautosched: interrupted")
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except AutoschedError as error:
        if output.verbose:
            import traceback

            complain("".join(traceback.format_exception(error)).rstrip())
        complain(f"autosched: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        complain("\nautosched: interrupted")
        return INTERRUPTED
    except BrokenPipeError:  # the reader of the pipe has closed it
        output.discard()
        return 0
    except OSError as error:
        complain(_unwritable(error) if error.errno in FULL else _deleted_folder() or _bug(error))
        return 1
    except Exception as error:  # process boundary: any other exception is a bug of ours
        complain(_bug(error))
        return 1
    return code if isinstance(code, int) else 0


def _deleted_folder() -> str:
    """Says that the current folder was deleted; empty if it was not."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return "autosched: the current folder was deleted; go to one that exists:  cd"
    return ""


def _unwritable(error: OSError) -> str:
    if error.filename is None:  # the only output without a name is stdout
        output.discard()
    return (
        f"autosched: {error.filename or 'the results'} cannot be written ({error.strerror});"
        " free some space there, or choose another place"
    )


def _bug(error: Exception) -> str:
    import tempfile
    import traceback

    with tempfile.NamedTemporaryFile("w", prefix="autosched-", suffix=".log", delete=False) as file:
        file.write(f"autosched {__version__}, Python {sys.version}, called as {sys.argv}\n")
        traceback.print_exception(error, file=file)
    return (
        f"autosched: this is a bug in autosched, not in what you typed: {type(error).__name__}: {error}\n"
        f"The details are in {file.name}; please attach that file to a report. Jobs in the daemon are not affected."
    )
