"""Surroundings that a user's machine may have: each is a script as a user would type it, and what must come of it.

The program must succeed, or end with one sentence that says what to do. It must not show a traceback, and no device may
be quarantined. With root, a script has mounts and processes of its own, which end with it.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from machines.case import Case, Failed, Impossible

LACKING = 77
"""Exit code of a script on a machine that cannot try it; its last line says what the machine lacks."""
SCRIPT_MAX_S = 300.0
INTERNAL = re.compile(r"Traceback \(most|this is a bug in autosched|Errno|quarantine", re.IGNORECASE)
ISOLATED = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
FILE = Path(__file__).with_suffix(".toml")
GROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Program:
    """Options for a short job and for one that takes some ten seconds, and the model. `search` is "mock" or "tvm"."""

    search: str
    options: str
    long: str
    model: bytes


MOCK = Program(
    "mock", "--backend mock --trials 16", "--backend mock --trials 64 --option build_s=0.5 --option profile_s=0.5",
    b"any bytes: the mock backend reads no model",
)  # fmt: skip

BEFORE = (Path(__file__).parent / "before.sh").read_text()
AFTER = """
code=$?
devices
exit $code
"""


@dataclass(frozen=True)
class Surrounding:
    """One table of surroundings.toml, whose head describes the fields."""

    name: str
    script: str
    refused: str = ""
    search: str = ""
    root: bool = False


def cases(program: Program) -> list[Case]:
    """Returns a case for each surrounding that holds for this backend."""
    return [
        Case(one.name, lambda folder, one=one: _attempt(one, program, folder))  # type: ignore[misc]
        for one in (Surrounding(**table) for table in tomllib.loads(FILE.read_text())["surrounding"])
        if one.search in ("", program.search)
    ]


def _attempt(one: Surrounding, program: Program, folder: Path) -> str:
    isolated = _can_isolate()
    if one.root and not isolated:
        raise Impossible("needs root, and the right to isolate processes and mounts (unshare)")
    if shutil.which("bash") is None:
        raise Impossible("needs bash: apt-get install bash")
    home = folder / "home"
    home.mkdir()
    (folder / "model").write_bytes(program.model)
    script = folder / "script"
    script.write_text(BEFORE + one.script + AFTER)
    for path in (folder, script, folder / "model"):
        path.chmod(0o755)
    group = f"autosched-{os.getpid()}-{abs(hash(one.name)) % 10**6}"
    environment = {
        "PATH": f"{Path(sys.executable).parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(home), "LANG": "C.UTF-8", "MODEL": str(folder / "model"), "OPTIONS": program.options,
        "LONG": program.long, "GROUP": group, "UNSHARED": "",
    }  # fmt: skip
    work = folder / "work"
    work.mkdir()
    words = [*(ISOLATED if isolated else ()), "bash", str(script)]
    with (folder / "said").open("wb") as said:
        running = subprocess.Popen(
            words, cwd=work, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True
        )
        try:
            code = running.wait(SCRIPT_MAX_S)
        except subprocess.TimeoutExpired:
            code = -1
        finally:
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
            running.wait()
    for left in (GROUPS / group, *GROUPS.glob(f"*/{group}")):
        with suppress(OSError):
            left.rmdir()
    return _judged(one, code, (folder / "said").read_text(errors="replace"))


@cache
def _can_isolate() -> bool:
    """Returns whether scripts can have mounts and processes of their own."""
    if os.geteuid() != 0 or shutil.which(ISOLATED[0]) is None:
        return False
    return subprocess.run([*ISOLATED, "true"], capture_output=True, check=False, timeout=SCRIPT_MAX_S).returncode == 0


def _judged(one: Surrounding, code: int, said: str) -> str:
    """Returns the words that tell how it went. Raises Failed or Impossible."""
    lines = [" ".join(line.split()) for line in said.split("\n") if line.strip()]
    last = " | ".join(lines[-8:])
    if code == LACKING:
        raise Impossible(lines[-1])
    if internal := INTERNAL.search(said):
        raise Failed(f"it shows {internal[0]!r}: {last}")
    if one.refused:
        told = [line for line in lines if line.startswith("autosched: ") and re.search(one.refused, line)]
        if code == 0 or not told:
            raise Failed(f"exit code {code}, without the words {one.refused!r}: {last}")
        return told[0]
    if code != 0:
        raise Failed(f"exit code {code}: {last}")
    equal = [line for line in lines if line.startswith("outputs equal")]
    return equal[-1] if equal else lines[-1]
