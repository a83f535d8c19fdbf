"""The conformance suite for pytest: inherit, name the backend, and every check is a test.

It needs no pytest: `autosched plugin check NAME` runs the same checks.
"""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar
from unittest import SkipTest

from autosched.conformance.backend_harness import Option, Subject
from autosched.conformance.check_runner import CHECKS, DEADLINE_S, Runner


class BackendContract:
    """Contract of every backend. Name the derived class Test..., so that pytest finds it."""

    backend: ClassVar[type[Any]]
    """The object of the entry point; must be at the top level of an importable module."""
    model: ClassVar[Path | bytes | None] = None
    """A small model: its file, or its bytes. None: the backend's `example`, or any bytes."""
    options: ClassVar[Mapping[str, Option]] = {}
    """Options with which a round is short."""
    target: ClassVar[str] = "auto"
    hanging: ClassVar[Mapping[str, Mapping[str, Option]]] = {}
    """Stage to options with which it never ends, if such options exist."""
    count: ClassVar[int] = 4
    """Candidates in a round."""
    rounds: ClassVar[int] = 20
    """Rounds of the memory check."""
    growth_bytes: ClassVar[int] = 64 * 1024**2
    """Growth of memory in bytes that does not count as a leak."""
    kill_s: ClassVar[float] = 1.0
    """Maximum seconds until a stage ends after a kill; increase it on a machine that is always busy."""
    deadline_s: ClassVar[float] = DEADLINE_S
    """Maximum seconds of one check."""
    isolated: ClassVar[bool] = True
    """False: run in this process, where a debugger can follow."""
    _runner: ClassVar[Runner | None] = None
    _folder: ClassVar[tempfile.TemporaryDirectory[str]]

    @classmethod
    def teardown_class(cls) -> None:
        """End the process of the checks."""
        if cls._runner is not None:
            cls._runner.close()
            cls._folder.cleanup()
            cls._runner = None

    @classmethod
    def subject(cls, folder: Path) -> Subject:
        """The subject of the checks; a model given as bytes is written to the folder."""
        return Subject(
            entry=f"{cls.backend.__module__}:{cls.backend.__qualname__}",
            model=str(model_file(cls.backend, cls.model, folder)), options=dict(cls.options), target=cls.target,
            hanging={stage: dict(options) for stage, options in cls.hanging.items()}, count=cls.count,
            rounds=cls.rounds, growth_bytes=cls.growth_bytes, kill_s=cls.kill_s,
        )  # fmt: skip

    @classmethod
    def hold(cls, name: str) -> None:
        """Run one check. Raises AssertionError with the failure, its position, and what to do."""
        if cls._runner is None:
            cls._folder = tempfile.TemporaryDirectory(prefix="autosched-model-")
            cls._runner = Runner(cls.subject(Path(cls._folder.name)), isolated=cls.isolated, deadline_s=cls.deadline_s)
        verdict = cls._runner.check(name)
        if verdict.state == "n/a":
            raise SkipTest(verdict.seen)
        if verdict.state == "broken":
            raise AssertionError("\n".join(verdict.lines()))


def model_file(backend: object, model: Path | bytes | None, folder: Path) -> Path:
    """The model as a file."""
    if model is None:
        model = getattr(backend, "example", None) or b"any bytes"
    if isinstance(model, bytes):
        (folder / "model.bin").write_bytes(model)
        return folder / "model.bin"
    return model.absolute()


def _test(name: str) -> Callable[[BackendContract], None]:
    def test(self: BackendContract) -> None:
        self.hold(name)

    test.__doc__ = CHECKS[name].__doc__
    return test


for _name in CHECKS:
    setattr(BackendContract, f"test_{_name}", _test(_name))
