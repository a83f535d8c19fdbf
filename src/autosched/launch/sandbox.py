"""Runs a program apart: it sees the system's programs and its own files, and no key, other job, process or network.

bubblewrap does it, with namespaces of the kernel (https://github.com/containers/bubblewrap).
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from msgspec import Struct

from autosched import user_folders
from autosched.process.detached_process import WRAPPER

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix", "/gnu", "/sys")
"""Folders of programs and libraries, and of facts about the machine."""
SETTINGS = (
    "alternatives", "ca-certificates", "debian_version", "group", "hosts", "ld.so.cache", "ld.so.conf", "ld.so.conf.d",
    "localtime", "machine-id", "nsswitch.conf", "OpenCL", "os-release", "passwd", "pki", "ssl/certs",
)  # fmt: skip
"""Names in /etc that programs read."""
SEPARATED = ("--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try")
SHARED_MEMORY_BYTES = 256 * 1024**2
"""Maximum bytes of files in /dev/shm, which is memory of no process."""
LIMITED = (
    *SEPARATED, "--cap-drop", "ALL", "--proc", "/proc", "--dev", "/dev",
    "--size", str(SHARED_MEMORY_BYTES), "--tmpfs", "/dev/shm",
)  # fmt: skip
TRY_S = 10.0
"""Maximum seconds of the trial whether the kernel allows it."""
INSTALL = "apt-get install bubblewrap"
RESTRICTED_BY_APPARMOR = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"
APPARMOR_ADVICE = (
    "; AppArmor allows it to programs with a profile alone: apt-get install apparmor-profiles, then link"
    " /usr/share/apparmor/extra-profiles/bwrap-userns-restrict into /etc/apparmor.d and reload it"
)


@cache
def unavailable() -> str:
    """The reason why programs cannot run apart here; empty if they can. Takes some milliseconds, once."""
    if (program := shutil.which(WRAPPER)) is None:
        return f"bubblewrap is not installed ({INSTALL})"
    trial = [program, *LIMITED, "--unshare-net", "--ro-bind", "/", "/", "--proc", "/proc", "true"]
    with tempfile.TemporaryFile() as errors:
        try:
            tried = subprocess.Popen(trial, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True)
        except OSError as error:
            return f"bubblewrap does not start ({error})"
        try:
            code = tried.wait(TRY_S)
        except subprocess.TimeoutExpired:
            return f"bubblewrap does not start within {TRY_S:g} s"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(tried.pid, signal.SIGKILL)  # where it may not drop capabilities, it leaves a child
            tried.wait()
        errors.seek(0)
        said = errors.read().decode(errors="replace").strip().splitlines() or [f"exit code {code}"]
    return f"this system does not allow bubblewrap to make namespaces ({said[-1]}){_advice()}" if code else ""


def _advice() -> str:
    """Advice for a distribution that allows namespaces to few programs."""
    with suppress(OSError):
        if Path(RESTRICTED_BY_APPARMOR).read_text().strip() == "1":
            return APPARMOR_ADVICE
    return ""


class Bounds(Struct, frozen=True):
    """The files and the network of programs that run apart."""

    hidden: tuple[Path, ...] = ()
    """Folders and files that they must not see, even where a package is beside or around them."""
    readable: tuple[Path, ...] = ()
    """Folders that they may read, even in a hidden one."""
    network: bool = False
    """Whether they may use the machine's network."""


def command(program: Sequence[str], writable: Iterable[Path], bounds: Bounds) -> list[str]:
    """The command that runs `program` apart, on Python's packages as they are here.

    `writable`: existing folders that it may change, even in a hidden one.
    """
    shown = [Path(path) for path in SYSTEM] + [Path("/etc", name) for name in SETTINGS] + _packages()
    words = [WRAPPER, *LIMITED, "--tmpfs", "/tmp"]
    words += ["--share-net"] if bounds.network else ["--unshare-net"]
    if bounds.network:
        shown += [Path("/etc/resolv.conf"), Path("/run/systemd/resolve")]
    for path in dict.fromkeys(shown):
        words += ["--ro-bind-try", str(path), str(path)]
    empty = [Path("/tmp"), Path("/")]
    for path in dict.fromkeys(bounds.hidden):
        if path.is_dir() and any(path.is_relative_to(one) for one in shown):
            words += ["--tmpfs", str(path)]
            empty.append(path)
        elif path.exists() and any(path.is_relative_to(one) for one in shown):
            words += ["--ro-bind", os.devnull, str(path)]
    for path in bounds.readable:
        words += ["--ro-bind", str(path), str(path)]
    for path in writable:
        words += ["--bind", str(path), str(path)]
    for path in empty:
        words += ["--remount-ro", str(path)]
    return [*words, "--", *program]


def _packages() -> list[Path]:
    """Folders from which programs and Python's packages are loaded; none that contains the user's home folder."""
    home = user_folders.home()
    given = [sys.prefix, sys.base_prefix, *sys.path, *_listed("PATH"), *_listed("LD_LIBRARY_PATH")]
    found = dict.fromkeys(Path(os.path.abspath(name)) for name in given if name)
    return [path for path in found if path.exists() and not home.is_relative_to(path)]


def _listed(variable: str) -> list[str]:
    return os.environ.get(variable, "").split(os.pathsep)
