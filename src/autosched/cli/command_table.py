"""The table of commands, and the border at which every error becomes words and an exit code."""

import errno
import gc
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

import click

from autosched.cli import output
from autosched.cli.command_group import Group
from autosched.cli.output import INTERRUPTED, complain
from autosched.errors import AutoschedError
from autosched.version import __version__

COMMANDS = {
    "tune": "tune:tune",
    "submit": "tune:submit",
    "attach": "tune:attach",
    "fetch": "fetch:fetch",
    "wait": "wait:wait",
    "compile": "tune:compile",
    "jobs": "listings:jobs",
    "job": "listings:job",
    "cancel": "listings:cancel",
    "explain": "listings:explain",
    "devices": "listings:devices",
    "device": "device:device",
    "gantt": "gantt:show",
    "plot": "plot:plot",
    "queue": "listings:queue",
    "set": "operations:set",
    "hold": "operations:hold",
    "release": "operations:release",
    "pause": "operations:pause",
    "resume": "operations:resume",
    "reload": "operations:reload",
    "drain": "operations:drain",
    "undrain": "operations:undrain",
    "free": "operations:free",
    "poison": "blocked:poison",
    "top": "top:top",
    "console": "console:console",
    "policy": "policy:policy",
    "status": "listings:status",
    "info": "listings:info",
    "slowlog": "listings:slowlog",
    "stop": "listings:stop",
    "sim": "sim:sim",
    "plan": "what_if:plan",
    "audit": "audit:audit",
    "key": "key:key",
    "serve": "serve:serve",
    "install-systemd": "systemd:install",
    "db": "db:db",
    "run": "module:run",
    "evaluate": "module:evaluate",
    "model": "model:model",
    "plugin": "plugin:plugin",
    "doctor": "doctor:doctor",
    "demo": "demo:demo",
    "completion": "manual:completion",
    "man": "manual:man",
}
ALIASES = {"token": "key:token"}
"""Work as well, and are in no list."""
MEANT = {"list": "jobs", "ls": "jobs", "ps": "jobs", "log": "device log UNIT"}
"""Command names of other programs, and ours."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


class Commands(Group):
    """A group whose commands are imported when one is named."""

    meant = MEANT

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module that holds the command."""
        if (where := COMMANDS.get(cmd_name) or ALIASES.get(cmd_name)) is None:
            return None
        module, _, name = where.partition(":")
        command: click.Command = getattr(import_module(f"autosched.cli.{module}"), name)
        gc.enable()
        return command


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
    """Tune neural networks: several at once, without one disturbing another's measurements.

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
    except BrokenPipeError:  # whoever read us has seen enough
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
