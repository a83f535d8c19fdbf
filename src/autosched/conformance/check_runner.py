"""Runs checks in a warm process that may crash or hang with the code under test, and is then replaced for the next
check.

That process is autosched.conformance.check_process.
"""

import inspect
import os
import shutil
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from autosched.conformance import baseline_checks, process_checks, search_checks, stage_checks, warm_start_checks
from autosched.conformance.backend_harness import BackendHarness, Broken, Check, NotApplicable, Subject
from autosched.conformance.plugin_errors import defined, place
from autosched.errors import AutoschedError
from autosched.process.answering_child import AnsweringChild

CHECKS: dict[str, Check] = {
    check.__name__: check
    for check in (
        *stage_checks.CHECKS[:9], *search_checks.CHECKS, *warm_start_checks.CHECKS, *stage_checks.CHECKS[9:],
        *baseline_checks.CHECKS, *process_checks.CHECKS,
    )
}  # fmt: skip
"""Checks, in the order in which their failures should be fixed."""
FIRST = ("a_session_opens", "the_model_is_imported")
"""Checks without which no other check means anything."""
DEADLINE_S = 300.0
TAIL_LINES = 3


class CheckResult(Struct, frozen=True):
    """Result of one check."""

    check: str
    state: Literal["ok", "broken", "n/a"]
    seen: str = ""
    where: str = ""
    """Position in the backend's code to look at: file:line, name."""

    @property
    def promise(self) -> str:
        """The promise that was checked."""
        return _explained(self.check)[0]

    @property
    def advice(self) -> str:
        """Advice for keeping the promise."""
        return _explained(self.check)[1]

    def lines(self) -> list[str]:
        """Lines for people: what failed, where, and what to do."""
        if self.state == "ok":
            return [f"ok   {self.check}"]
        if self.state == "n/a":
            return [f"n/a  {self.check}: {self.seen}"]
        told = [f"FAIL {self.check}", f"       must be: {self.promise}", f"       is:      {self.seen}"]
        told += [f"       where:   {self.where}"] if self.where else []
        return [*told, f"       to do:   {self.advice}"]


def _explained(check: str) -> tuple[str, str]:
    text = inspect.getdoc(CHECKS[check]) or ""
    promise, _, advice = text.partition("\n\n")
    return " ".join(promise.split()), " ".join(advice.split())


def judge(bench: BackendHarness, name: str) -> CheckResult:
    """Run one check in this process."""
    try:
        CHECKS[name](bench)
    except NotApplicable as error:
        return CheckResult(name, "n/a", str(error))
    except Broken as error:
        return CheckResult(name, "broken", str(error), defined(error.at))
    except AutoschedError as error:
        return CheckResult(name, "broken", f"it raised {type(error).__name__}: {error}", place(error))
    except Exception as error:  # boundary to the backend's code
        traceback.print_exc()
        return CheckResult(name, "broken", f"it raised {type(error).__name__}: {error}", place(error))
    return CheckResult(name, "ok")


class Runner:
    """Checks of one subject."""

    def __init__(self, subject: Subject, *, isolated: bool = True, deadline_s: float = DEADLINE_S) -> None:
        self._subject, self._isolated, self._deadline_s = subject, isolated, deadline_s
        self._folder = Path(tempfile.mkdtemp(prefix="autosched-check-"))
        self._child: AnsweringChild | None = None
        self._count = 0
        self.stopped_by = ""
        """Name of the failed check after which no other one is run."""
        self._bench = BackendHarness(subject, self._folder / "here")

    def __enter__(self) -> "Runner":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process and delete its folder."""
        self._end()
        shutil.rmtree(self._folder, ignore_errors=True)

    def check(self, name: str) -> CheckResult:
        """Run one check, unless a check that it depends on has failed."""
        if self.stopped_by and self.stopped_by != name:
            return CheckResult(name, "n/a", f"not checked: {self.stopped_by} must be mended first")
        verdict = self._verdict(name)
        if name in FIRST:
            self.stopped_by = name if verdict.state == "broken" else ""
        return verdict

    def _verdict(self, name: str) -> CheckResult:
        """Result of a check in the process; a process that does not survive is replaced for the next check."""
        if not self._isolated:
            return judge(self._bench, name)
        if self._child is None:
            self._child = self._start()
        self._child.tell(f"{name}\n".encode())
        answer = self._child.answer(self._deadline_s)
        if answer:
            return msgspec.msgpack.decode(answer, type=CheckResult)
        if answer is None:
            seen = f"it did not end within {self._deadline_s:g} s"
        else:
            seen = f"the process in which it ran {self._child.how_it_ended()}"
        said = self._log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
        self._end()
        return CheckResult(name, "broken", seen + (f"; its last words: {' / '.join(said)}" if said else ""))

    @property
    def _log(self) -> Path:
        return self._folder / f"{self._count}.log"

    def _start(self) -> AnsweringChild:
        """Start a process with the environment of a client, and with its own current folder, HOME and TMPDIR."""
        self._count += 1
        places = {name: self._folder / f"{self._count}-{name}" for name in ("HOME", "TMPDIR", "cwd", "bench")}
        for folder in places.values():
            folder.mkdir()
        path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("XDG_")},
            "HOME": str(places["HOME"]), "TMPDIR": str(places["TMPDIR"]), "XDG_CACHE_HOME": str(places["TMPDIR"]),
            "PYTHONPATH": path,
        }  # fmt: skip
        with self._log.open("ab") as log:
            child = AnsweringChild(
                "autosched.conformance.check_process", [str(places["bench"])],
                environment=environment, output=log, folder=places["cwd"],
            )  # fmt: skip
        child.tell(msgspec.json.encode(self._subject) + b"\n")
        return child

    def _end(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None
