"""Backends of one class that misbehave when a choice says so."""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from autosched.errors import ModelRejected
from autosched.model import Failure
from autosched.simple import CandidateFailed, Choice, Job, Run, SimpleBackend, Space


class Toy(SimpleBackend):
    """Does what the knob `how` says."""

    build_timeout_s = run_timeout_s = 60.0
    trials_per_task = 4

    def spaces(self, job: Job) -> Sequence[Space]:
        words = job.model.read_text().split()
        if not words:
            raise ModelRejected("it is empty")
        if "spaces-exit" in words:
            sys.exit(3)
        if "spaces-lack-memory" in words:
            os.kill(os.getpid(), 9)
        if "bad-space" in words:
            return [Space(name="bad", knobs={"how": ()}, default={"how": "well"})]
        return [Space(name="toy", knobs={"how": tuple(words)}, default={"how": words[0]}, weight=2, flops=1.0)]

    def build(self, job: Job, space: Space, choice: Choice, folder: Path) -> None:
        match choice["how"]:
            case "build-fails":
                raise CandidateFailed("no")
            case "build-raises":
                raise KeyError("key")
            case "build-crashes":
                os.kill(os.getpid(), 11)
            case "build-ends":
                os._exit(3)
            case "build-hangs":
                time.sleep(600)
        (folder / "artifact").write_text(str(choice["how"]))

    def code(self, job: Job, space: Space, choice: Choice, folder: Path) -> str:
        match choice["how"]:
            case "code-is-no-digest":
                return "xyz"
            case "code-is-nothing":
                return ""
        return str(choice["how"]).encode().hex()[:64]

    def measure(self, job: Job, space: Space, choice: Choice, folder: Path) -> Run:
        assert (folder / "artifact").read_text() == choice["how"]
        print("noise")
        match choice["how"]:
            case "run-crashes":
                os.kill(os.getpid(), 6)
            case "run-refuses":
                raise CandidateFailed("too hot", Failure.RUN_CRASH)
            case "run-is-wrong":
                return Run((0.1,), (2.0,))
            case "run-is-nan":
                return Run((0.1,), (float("nan"),))
            case "measures-nan":
                return Run((float("nan"),), (1.0,))
            case "fast":
                return Run((0.1,), (1.0,))
        return Run((0.5,), (1.0,))


class Hasty(Toy):
    """Has short time limits."""

    build_timeout_s = run_timeout_s = 2.0


class FussyOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """Options of a job."""

    care: int = 0


class Fussy(Toy):
    """Has an option."""

    Options = FussyOptions


class Lazy(SimpleBackend):
    """Implements nothing."""
