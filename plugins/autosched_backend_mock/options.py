"""Options of a job, with defaults. Every name is a key of `JobSpec.options`; times in seconds."""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from autosched.errors import RequestError, misfit

Duration = Annotated[float, Meta(ge=0, le=86_400)]
Ratio = Annotated[float, Meta(ge=0, le=1)]
STANDARD = "standard"
"""Names the instances that come with the package, instead of a file."""
Stage = Literal["", "import", "select", "build", "profile", "update", "baseline", "compile", "evaluate"]


class Options(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long stages take, and what goes wrong in them."""

    tasks: Annotated[int, Meta(ge=1, le=4_096)] = 3
    """Operators of the made-up network."""
    import_s: Duration = 0.0
    select_s: Duration = 0.0
    build_s: Duration = 0.0
    profile_s: Duration = 0.0
    update_s: Duration = 0.0
    compile_s: Duration = 0.0
    evaluate_s: Duration = 0.0
    baseline_s: Duration = 0.0
    """Time of each step of the stage, unless an instance or a journal knows better."""
    spread: Annotated[float, Meta(ge=0, le=5)] = 0.0
    """Times are multiplied by a random factor of mean 1: LogN with this sigma, drawn from the job's seed."""
    instance: str = ""
    """File of scheduling instances (JSON), or `standard`: one job's build, profile and update times are taken of it."""
    instance_name: str = ""
    """May be left out when the file has only one."""
    instance_job: Annotated[int, Meta(ge=0)] = 0
    """Counts the instance's jobs from 0."""
    journal: str = ""
    """Database of a daemon or its state folder: the tasks of one job and the times of its steps are taken of it."""
    journal_job: Annotated[int, Meta(ge=0)] = 0
    time_scale: Annotated[float, Meta(gt=0, le=1_000)] = 1.0
    """Multiplies every time, wherever it comes from."""
    fail_ratio: Ratio = 0.0
    """Share of candidates that fail to build."""
    run_fail_ratio: Ratio = 0.0
    """Share of candidates that fail when they are measured."""
    poison_ratio: Ratio = 0.0
    """Share of candidates that crash wherever they are measured."""
    sick: str = ""
    """A file with names of devices, one a line, on which whatever is measured crashes; no file, no sick device."""
    step_fail_ratio: Ratio = 0.0
    hang_ratio: Ratio = 0.0
    crash_ratio: Ratio = 0.0
    """Share of the steps of a round that fail as a whole, never end, or kill the client."""
    hang_stage: Stage = ""
    """A stage that never ends."""
    crash_stage: Stage = ""
    """A stage that kills the client."""
    rival_s: Duration = 0.0
    """Latency of what the user would run otherwise, to which builds are compared during the search; 0: nothing is."""
    rest_s: Duration = 0.0
    """Latency of what is not tuned."""
    reject: str = ""
    """Refuse the model, in these words."""
    compiler: str = ""
    """Version of the compiler, of which nothing depends but what measurements can be compared."""
    tasks_only: bool = False
    """The tasks belong to no network: nothing is compiled or evaluated."""
    finals: bool = True
    """Compare the best candidates and the default at the end; never with times of an instance or a journal."""
    movable: bool = False
    """Builds are files, and candidates may be built and measured on other hosts than the client's."""
    divisible: bool = False
    """Several devices may share the measurements of a round, each of which takes its part of the stage's time."""
    log: str = ""
    """File to which each stage appends when it began and ended, by this machine's monotonic clock."""

    def seconds(self, stage: str) -> float:
        """The time that is set for a stage, not scaled."""
        value: float = getattr(self, f"{stage}_s")
        return value


def read(given: Mapping[str, bool | int | float | str]) -> Options:
    """The options of a job. Raises RequestError for an unknown name or a value that does not fit."""
    known = Options.__struct_fields__
    for name in given:
        if name not in known:
            raise RequestError(f"backend mock has no option {name!r}; it has: {', '.join(known)}")
    try:
        options = msgspec.convert(dict(given), Options)
    except msgspec.ValidationError as error:
        raise RequestError(f"backend mock, option {misfit(error)}") from error
    if options.instance and options.journal:
        raise RequestError(
            "backend mock: the times come either from an instance or from a journal, and both are set; leave one out"
        )
    for name, needed in (
        ("instance_name", "instance"),
        ("instance_job", "instance"),
        ("journal_job", "journal"),
    ):
        if name in given and not getattr(options, needed):
            raise RequestError(f"backend mock: {name} is set, but no file to look it up in; set {needed}=FILE as well")
    return options
