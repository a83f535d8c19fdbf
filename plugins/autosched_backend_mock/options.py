"""Options of a job, with defaults. Every name is a key of `JobSpec.options`; times in seconds."""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from autosched.errors import RequestError, misfit

Duration = Annotated[float, Meta(ge=0, le=86_400)]
Ratio = Annotated[float, Meta(ge=0, le=1)]
STANDARD = "standard"
"""Name of the package's instances, in place of a file."""
Stage = Literal["", "import", "select", "build", "profile", "update", "baseline", "compile", "evaluate"]


class Options(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Durations of stages, and faults."""

    tasks: Annotated[int, Meta(ge=1, le=4_096)] = 3
    """Number of operators of the synthetic network."""
    import_s: Duration = 0.0
    select_s: Duration = 0.0
    build_s: Duration = 0.0
    profile_s: Duration = 0.0
    update_s: Duration = 0.0
    compile_s: Duration = 0.0
    evaluate_s: Duration = 0.0
    baseline_s: Duration = 0.0
    """Seconds of each step of the stage, unless an instance or a journal has a time for it."""
    spread: Annotated[float, Meta(ge=0, le=5)] = 0.0
    """Sigma of a random factor of times, log-normal with mean 1, drawn from the job's seed."""
    instance: str = ""
    """File of scheduling instances (JSON), or `standard`: the source of one job's build, profile and update times."""
    instance_name: str = ""
    """May be omitted if the file has only one."""
    instance_job: Annotated[int, Meta(ge=0)] = 0
    """Number of the instance's job, from 0."""
    journal: str = ""
    """Database of a daemon or its state folder: the source of one job's tasks and of the times of its steps."""
    journal_job: Annotated[int, Meta(ge=0)] = 0
    time_scale: Annotated[float, Meta(gt=0, le=1_000)] = 1.0
    """Factor of all times."""
    fail_ratio: Ratio = 0.0
    """Share of candidates that fail to build."""
    run_fail_ratio: Ratio = 0.0
    """Share of candidates that fail when they are measured."""
    broken_ratio: Ratio = 0.0
    """Share of candidates that crash on every device."""
    sick: str = ""
    """A file with names of devices, one a line, on which every measurement crashes; no file, no faulty device."""
    step_fail_ratio: Ratio = 0.0
    hang_ratio: Ratio = 0.0
    crash_ratio: Ratio = 0.0
    """Share of the steps of a round that fail as a whole, never end, or kill the client."""
    hang_stage: Stage = ""
    """A stage that never ends."""
    crash_stage: Stage = ""
    """A stage that kills the client."""
    rival_s: Duration = 0.0
    """Latency of the baseline, with which builds are compared during the search; 0: no baseline."""
    rest_s: Duration = 0.0
    """Latency outside the tasks."""
    reject: str = ""
    """Refuse the model with this message."""
    compiler: str = ""
    """Version of the compiler, which only affects which measurements are comparable."""
    tasks_only: bool = False
    """The tasks belong to no network: nothing is compiled or evaluated."""
    finals: bool = True
    """Compare the best candidates and the default at the end; never with times of an instance or a journal."""
    movable: bool = False
    """Builds are files, and candidates may be built and measured on other hosts than the client's."""
    divisible: bool = False
    """Several devices may share the measurements of a round, each with its part of the stage's time."""
    log: str = ""
    """File to which each stage appends its start and end, by this machine's monotonic clock."""

    def seconds(self, stage: str) -> float:
        """The configured time of a stage, not scaled."""
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
