"""The table of commands, and the border at which every error becomes words and an exit code."""

import errno
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
        "fetch": ("fetch:fetch", "fetch what a running job has so far"),
        "compile": ("tune:compile", "compile a job's network with its trials so far"),
        "run": ("module:run", "run a compiled network once"),
        "evaluate": ("module:evaluate", "measure a compiled network"),
        "experiment": ("nouns:experiment", "many combinations: check, run, status, results, stop"),
        "collect": ("collect:collect", "tasks of many networks, tuned before they are asked for"),
        "demo": ("demo:demo", "see what autosched does, in minutes"),
    },
    "Watch": {
        "jobs": ("listings:jobs", "list jobs"),
        "job": ("nouns:job", "one job: show, explain, wait, set, hold, release, cancel"),
        "top": ("top:top", "watch devices, jobs and latencies live"),
        "queue": ("listings:queue", "who waits for what, and who is next"),
        "gantt": ("gantt:show", "who used which device when"),
        "plot": ("plot:plot", "how a job's best latency fell"),
    },
    "Operate": {
        "device": ("nouns:device", "devices: list, log, explain, drain, undrain, free"),
        "hosts": ("nouns:hosts", "other machines: list, show, add, drain, undrain, forget, scale"),
        "policy": ("policy:policy", "show or choose the scheduling policy"),
        "blocked": ("blocked:poison", "candidates blocked after failures: list, forgive"),
        "audit": ("audit:audit", "who changed what"),
        "console": ("console:console", "type commands to the daemon itself"),
    },
    "Daemon and data": {
        "daemon": ("nouns:daemon", "serve, status, stop, pause, resume, reload, info, install"),
        "agent": ("agent:agent", "lend this machine to a daemon on another one"),
        "board": ("board:board", "run a TVM RPC server, on the board itself"),
        "key": ("key:key", "keys of users on other machines: new, list, revoke"),
        "records": ("nouns:records", "known schedules: list, best, show, export, import, upgrade"),
        "db": ("db:db", "the database: check, backup, restore, upgrade, prune"),
    },
    "Develop": {
        "doctor": ("doctor:doctor", "check this machine"),
        "model": ("model:model", "see what would be tuned of a network"),
        "plugin": ("plugin:plugin", "backends: list, new, check, run"),
        "sim": ("sim:sim", "simulate the scheduler on known loads"),
        "plan": ("what_if:plan", "what recorded jobs would take with more devices"),
        "completion": ("manual:completion", "completion of commands for your shell"),
    },
}
"""Commands by subject: name -> place and what it is for, in at most ten words."""
FLAT = {
    "cancel": "listings:cancel", "devices": "listings:devices", "drain": "operations:drain",
    "explain": "listings:explain", "man": "manual:man",
    "free": "operations:free", "hold": "operations:hold", "info": "listings:info", "install-systemd": "systemd:install",
    "pause": "operations:pause", "poison": "blocked:poison", "release": "operations:release",
    "reload": "operations:reload",
    "resume": "operations:resume", "serve": "serve:serve", "set": "operations:set", "slowlog": "listings:slowlog",
    "status": "listings:status", "stop": "listings:stop", "token": "key:token", "undrain": "operations:undrain",
    "wait": "wait:wait",
}  # fmt: skip
"""Names of verbs without their noun, and what only packagers need. They work as well, and are in no list."""
VISIBLE = {name: place for group in GROUPS.values() for name, (place, _) in group.items()}
COMMANDS = VISIBLE | FLAT
"""All names that work."""
MEANT = {"list": "jobs", "ls": "jobs", "ps": "jobs", "log": "device log UNIT"}
"""Command names of other programs, and ours."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


class Commands(Group):
    """A group whose commands are imported when one is named."""

    meant = MEANT
    hidden_names = tuple(FLAT)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the commands by subject."""
        return list(VISIBLE)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module that holds the command."""
        return load(COMMANDS[cmd_name]) if cmd_name in COMMANDS else None

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Commands by subject, a line for each, so that all of them fit a terminal."""
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
@click.option("-v", "--verbose", is_flag=True, help="Say what the daemon is asked, and where an error arose.")
@click.option("--color/--no-color", "colour", default=None, help="Colours: on terminals, unless NO_COLOR.")
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
    """Act, and say what goes wrong; returns the exit code."""
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
    except BrokenPipeError:  # the reader of the pipe has seen enough
        output.discard()
        return 0
    except OSError as error:
        complain(_unwritable(error) if error.errno in FULL else _bug(error))
        return 1
    except Exception as error:  # the process border: a bug of ours
        complain(_bug(error))
        return 1
    return code if isinstance(code, int) else 0


def _unwritable(error: OSError) -> str:
    if error.filename is None:  # of what is written, only stdout has no name
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
