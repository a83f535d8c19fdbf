"""Tunes a C program: its own compile-time constants, and the flags of gcc. A worked example without TVM.

The model is one C file. Comments define the knobs (the first value is the default) and the number of operations:

    // knob TILE: 16 8 32 64
    // flops: 33554432

gcc gets each knob as -DTILE=value. The program is called with a number of repetitions. It prints the seconds of each,
one per line, and then a line of results that starts with "output" and must not depend on the knobs.
"""

import json
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from autosched.errors import ModelRejected
from autosched.model import Failure
from autosched.simple import CandidateFailed, Choice, Job, Run, SimpleBackend, Space, Value, code_name

FLAGS: dict[str, tuple[str, ...]] = {
    "level": ("-O2", "-O1", "-O3"),
    "machine": ("", "-march=native"),
    "unroll": ("", "-funroll-loops"),
    "math": ("", "-ffast-math"),
    "prefetch": ("", "-fprefetch-loop-arrays"),
}
"""Flags that suit every program; the first of each is the default."""
MESSAGE_LINES = 3
"""Maximum lines of a compiler's message."""
VERSION_TIMEOUT_S = 30.0
"""Maximum seconds for gcc to print its version."""


class Options(Struct, frozen=True, forbid_unknown_fields=True):
    """Options of a job."""

    repeat: Annotated[int, Meta(ge=1, le=1_000)] = 5
    """Number of timed calls of a measurement."""
    flags: bool = True
    """Vary the compiler's flags too, not only the program's own constants."""


class GccBackend(SimpleBackend):
    """The entry point."""

    Options = Options
    example = Path(__file__).parent / "examples/matmul.c"
    tolerance = 1e-4  # -ffast-math may round otherwise

    def spaces(self, job: Job) -> Sequence[Space]:
        """The one task of a program."""
        text = job.model.read_text(errors="replace")
        if "main" not in text:
            raise ModelRejected(f"{job.model.name} has no main(), so it is no C program that this backend can tune")
        assert isinstance(job.options, Options)
        own = dict(_constants(text, job.model.name))
        knobs: dict[str, tuple[Value, ...]] = {**own, **(FLAGS if job.options.flags else {})}
        if not knobs:
            raise ModelRejected(f'{job.model.name} names nothing to vary: add a comment like "// knob TILE: 16 8 32"')
        flops = re.search(r"^// flops: *(\d+)", text, re.MULTILINE)
        return [
            Space(
                name=job.model.stem, knobs=knobs, default={name: values[0] for name, values in knobs.items()},
                flops=float(flops[1]) if flops else 0.0, shape=f"C program, constants {', '.join(own) or 'none'}",
            )
        ]  # fmt: skip

    def build(self, job: Job, space: Space, choice: Choice, folder: Path) -> None:
        """Compile; the reason of a failure is gcc's own message."""
        done = subprocess.run(command(choice, job.model, folder / "program"), capture_output=True, text=True)
        if done.returncode:
            raise CandidateFailed("\n".join(done.stderr.splitlines()[:MESSAGE_LINES]))

    def code(self, job: Job, space: Space, choice: Choice, folder: Path) -> str:
        """Name of the compiled program: flags without an effect give the same bytes."""
        return code_name((folder / "program").read_bytes())

    def measure(self, job: Job, space: Space, choice: Choice, folder: Path) -> Run:
        """Run the program once; it repeats by itself."""
        assert isinstance(job.options, Options)
        done = subprocess.run([folder / "program", str(job.options.repeat)], capture_output=True, text=True)
        if done.returncode < 0:
            raise CandidateFailed(f"killed by {signal.Signals(-done.returncode).name}", Failure.RUN_CRASH)
        if done.returncode:
            raise CandidateFailed(f"exit code {done.returncode}: {done.stderr[:1_000]}")
        *seconds, output = done.stdout.splitlines()
        return Run(tuple(map(float, seconds)), tuple(map(float, output.removeprefix("output").split())))

    def compiler(self, job: Job) -> str:
        """The gcc on PATH."""
        return _gcc_version()

    def publish(self, job: Job, best: Sequence[tuple[Space, Choice, Path]], outdir: Path) -> None:
        """Write program, source, and the command that compiles it."""
        for space, choice, folder in best:
            (outdir / space.name).write_bytes((folder / "program").read_bytes())
            (outdir / f"{space.name}.c").write_bytes(job.model.read_bytes())
            words = shlex.join(command(choice, Path(f"{space.name}.c"), Path(space.name)))
            (outdir / f"{space.name}.json").write_text(
                json.dumps({"command": words, "choice": dict(choice)}, indent=1) + "\n"
            )


def command(choice: Choice, source: Path, program: Path) -> list[str]:
    """The command for a choice."""
    flags = [str(choice[name]) for name in FLAGS if choice.get(name)]
    constants = [f"-D{name}={value}" for name, value in choice.items() if name not in FLAGS]
    return ["gcc", *(flags or ["-O2"]), *constants, "-o", str(program), str(source), "-lm"]


@cache
def _gcc_version() -> str:
    done = subprocess.run(["gcc", "-dumpfullversion"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S)
    return f"gcc {done.stdout.strip()}"


def _constants(text: str, file: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    for name, values in re.findall(r"^// knob (\w+):(.*)$", text, re.MULTILINE):
        try:
            yield name, tuple(dict.fromkeys(int(value) for value in values.split()))
        except ValueError:
            raise ModelRejected(f"{file}: the values of knob {name} must be whole numbers, not {values!r}") from None
