"""The README's two commands on a fresh Debian in a folder, typed by a user without root.

debootstrap makes a minimal system with the packages that the README names, once. Each try starts with a new user whose
home holds a clone of the last commit, in a folder with a space in its name. Only pip's way to its index is taken over.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from machines.case import CACHE, PROJECT, Case, Failed, Impossible

SUITES = ("bookworm", "trixie", "testing")
USER, USER_ID = "newcomer", 4321
CLONE = "my project"
MAKE_MAX_S = 900.0
COMMAND_MAX_S = {"demo": 1500.0, "test": 3000.0}
WORDS_OF_COMMAND = {"demo": r"^ .*ONNX Runtime.*$|^.*outputs equal.*$", "test": r"^\d+ passed.*$|^=+ .*\d passed.*$"}
PIP_SETTINGS = ("index-url", "extra-index-url", "proxy", "timeout", "trusted-host")


def cases() -> list[Case]:
    """Returns a case for each suite and command."""
    return [
        Case(f"{suite}, make {command}", lambda folder, suite=suite, command=command: _attempt(suite, command))  # type: ignore[misc]
        for command in COMMAND_MAX_S
        for suite in SUITES
    ]


def _attempt(suite: str, command: str) -> str:
    root = _system(suite)
    home = root / "home" / USER
    clone = home / CLONE
    commit = _said("git", "-C", str(PROJECT), "rev-parse", "HEAD")
    if not clone.exists() or _said("git", "-C", str(clone), "rev-parse", "HEAD") != commit:
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(mode=0o700)
        _run("git", "clone", "-q", "--no-hardlinks", str(PROJECT), str(clone))
        _run("chown", "-R", f"{USER_ID}:{USER_ID}", str(home))
    log = CACHE / f"{suite}-{command}.log"
    typed = f"cd {shlex.quote(CLONE)} && make {command}"
    inside = (
        f"mount --rbind /dev {root}/dev; mount -t sysfs -o ro sys {root}/sys; mount -t proc proc {root}/proc; "
        f"mount -t tmpfs -o mode=1777 tmp {root}/tmp; exec chroot {root} setpriv --reuid {USER_ID} --regid {USER_ID} "
        f"--init-groups --no-new-privs env -i HOME=/home/{USER} USER={USER} PATH=/usr/local/bin:/usr/bin:/bin "
        f"LANG=C.UTF-8 TERM=dumb sh -c {shlex.quote(f'cd; {typed}')}"
    )
    with log.open("wb") as output:
        done = subprocess.run(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", inside],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False, timeout=COMMAND_MAX_S[command],
        )  # fmt: skip
    text = log.read_text(errors="replace")
    if done.returncode:
        raise Failed(f"exit code {done.returncode}; its log is {log}; its end: " + " | ".join(text.split("\n")[-12:]))
    return "; ".join(" ".join(line.split()) for line in re.findall(WORDS_OF_COMMAND[command], text, re.MULTILINE))


def _system(suite: str) -> Path:
    """Returns the root folder of a minimal system; makes it first where it is not there."""
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        raise Impossible("needs root and debootstrap: apt-get install debootstrap")
    root, ready = CACHE / suite, CACHE / f"{suite}.packages"
    packages = packages_of_readme()
    if ready.exists() and ready.read_text() == packages:
        return root
    shutil.rmtree(root, ignore_errors=True)
    CACHE.mkdir(parents=True, exist_ok=True)
    included = ",".join([*packages.split(), "ca-certificates"])
    _run("debootstrap", "--variant=minbase", f"--include={included}", suite, str(root))
    with (root / "etc/passwd").open("a") as users:
        users.write(f"{USER}:x:{USER_ID}:{USER_ID}::/home/{USER}:/bin/sh\n")
    with (root / "etc/group").open("a") as groups:
        groups.write(f"{USER}:x:{USER_ID}:\n")
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    _take_over_pip(root)
    ready.write_text(packages)
    return root


def packages_of_readme() -> str:
    """Returns the names of the Debian packages that the README asks for."""
    found = re.search(r"On a fresh Debian [^(]+\(`([^`]+)`", (PROJECT / "README.md").read_text())
    assert found, "the README names the packages of a fresh Debian"
    return found[1]


def _take_over_pip(root: Path) -> None:
    """Writes pip's settings: where its index is and whose certificates it trusts."""
    listed = _said(sys.executable, "-m", "pip", "--disable-pip-version-check", "config", "list")
    settings = dict(re.findall(r"^(?:global|user|:env:)\.([\w-]+)='(.*)'$", listed, re.MULTILINE))
    kept = [f"{name} = {settings[name]}" for name in PIP_SETTINGS if not re.match("file:|$", settings.get(name, ""))]
    if certificates := settings.get("cert"):
        shutil.copy(certificates, root / "etc/pip-certificates.pem")
        kept.append("cert = /etc/pip-certificates.pem")
    (root / "etc/pip.conf").write_text("\n".join(["[global]", *kept]) + "\n")


def _run(*words: str) -> None:
    with tempfile.TemporaryFile("w+") as output:
        done = subprocess.run(words, stdout=output, stderr=output, check=False, timeout=MAKE_MAX_S)
        output.seek(0)
        if done.returncode:
            raise Failed(f"{words[0]} ended with exit code {done.returncode}: {output.read()[-500:]}")


def _said(*words: str) -> str:
    """Returns the standard output of a command; git may read a clone of another owner."""
    environment = {
        **os.environ,
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
    }
    return subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=MAKE_MAX_S, env=environment
    ).stdout.strip()
