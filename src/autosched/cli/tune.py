"""Commands that run a job: tune, submit, attach, compile."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click
import msgspec

from autosched import api, file_names, formatting
from autosched.api import Option, Settings, result_folder, tuning
from autosched.api.connection import Daemon
from autosched.api.on_demand import connected, kind_of_cores
from autosched.api.whole_models import whole
from autosched.cli.follow import follow, interruptible
from autosched.cli.listings import seconds_of
from autosched.cli.output import INTERRUPTED, data, document, format_option, say, table
from autosched.cli.policy import policy_options, serve_words
from autosched.cli.result_summary import shown
from autosched.config import Config
from autosched.device_types import TARGET_KINDS
from autosched.errors import Refused, RequestError
from autosched.model import DEFAULT_BACKEND, TRIALS_MAX, Goal, JobId, JobSpec, JobState, device_kind
from autosched.protocol import Forecast, JobList, JobView, ListJobs, Submitted, UnitList
from autosched.protocol.pagination import answered_async
from autosched.text.job_selectors import labels, select, select_one

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
DEVICE = "cpu"
"""Device of jobs that name none."""
TARGETS = ("auto", "x86-64(-v[234])?", *TARGET_KINDS)
"""Targets of a single word; any other CPU is named with -mcpu."""
AHEAD = 4
"""Number of jobs that are submitted at a time, if a command needs many: each has a process of some 400 MB."""
LAYOUTS = ("keep", "nchw", "nhwc", "nchwc", "auto")


Shapes = dict[str, tuple[int, ...]]
"""Shapes of inputs by name."""


class Choices(NamedTuple):
    """The choices of shapes for which a network is tuned."""

    shapes: list[Shapes]
    least: int | None = None
    """The smallest size of a range, whose larger ones have a network each; None without a range."""


def choices_of(_ctx: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> Choices:
    """ "x=1,3,48,320" becomes one choice. Several shapes of an input give as many; so does a range, "x=1,1..512"."""
    ranges = {found[0] for value in values for found in _RANGE.finditer(value)}
    if not ranges:
        return Choices(_listed(values))
    if len(ranges) > 1:
        raise click.BadParameter(f"there are several ranges: {', '.join(sorted(ranges))}; one size may vary")
    (text,) = ranges
    least, most = map(int, text.split(".."))
    if not 0 < least < most <= formatting.WHOLE_MAX:
        raise click.BadParameter(f"{text!r} is no range of sizes. Write the smaller one first, for example 1..512")
    choices = [_listed([value.replace(text, str(size)) for value in values]) for size in sizes_of(least, most)]
    if any(len(one) > 1 for one in choices):
        raise click.BadParameter(f"an input has the range {text} and another shape: give it one of them")
    return Choices([one for (one,) in choices], least)


def sizes_of(least: int, most: int) -> list[int]:
    """The sizes of a range that have a network: each is at most about an eighth larger than the one before."""
    sizes = [most]
    while sizes[-1] > least:
        step = next(step for step, from_size in STEPS if sizes[-1] > from_size)
        below = -(-int(sizes[-1] / SIZE_RATIO) // step) * step
        sizes.append(max(least, min(below, sizes[-1] - step)))
    return sizes[::-1]


_RANGE = re.compile(r"\d+\.\.\d+")
SIZE_RATIO = 1.125
"""Ratio of a size to the next smaller one: the largest excess of work of a padded call."""
STEPS = (16, 128), (8, 64), (4, 24), (2, 8), (1, 0)
"""Numbers of which sizes are multiples, and the size above which they are."""


def _listed(values: Sequence[str]) -> list[Shapes]:
    """Choices of shapes from shapes without ranges."""
    given: dict[str, list[tuple[int, ...]]] = {}
    for value in values:
        name, equals, text = value.rpartition("=")
        extents = text.replace("x", ",").split(",")
        if "0" in extents:
            raise click.BadParameter(f"{value!r} has a size of 0; empty inputs are not supported: give 1 or more")
        if (
            not equals
            or not name
            or not all(e.strip().isdecimal() and 0 < int(e) <= formatting.WHOLE_MAX for e in extents)
        ):
            raise click.BadParameter(f"{value!r} is no shape. Write NAME=D1,D2,..., for example x=1,3,48,320")
        given.setdefault(name, []).append(tuple(int(extent) for extent in extents))
    count = max(map(len, given.values()), default=1)
    for name, shapes in given.items():
        if len(shapes) not in (1, count):
            raise click.BadParameter(
                f"{name} has {len(shapes)} shapes, and another input {count}: give each input one, or all as many"
            )
    choices = [{name: shapes[n % len(shapes)] for name, shapes in given.items()} for n in range(count)]
    if any(choices.count(one) > 1 for one in choices):
        raise click.BadParameter("these shapes are given twice: give each once")
    return choices


def shapes_of(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> Shapes:
    """The only choice of shapes."""
    choices = choices_of(context, option, values).shapes
    if len(choices) > 1:
        raise click.BadParameter("several shapes of an input are for  autosched tune;  give one here")
    return choices[0]


def options_of(_ctx: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> dict[str, Option]:
    """ "population=64" becomes {"population": 64}."""
    options = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{value!r} is no option of a backend. Write KEY=VALUE, for example population=64")
        options[name] = number = _value(text)
        if isinstance(number, int) and abs(number) > formatting.WHOLE_MAX:
            raise click.BadParameter(f"{value!r}: no number is larger than {formatting.WHOLE_MAX}")
    return options


def labels_of(_ctx: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """ "team=vision" becomes {"team": "vision"}."""
    return labels(values)


def placed(target: str, device: str, lab: UnitList) -> tuple[str, str]:
    """Target and device of a job. A target that is the kind of a device selects that device and its own target.

    Raises RequestError for a single word that is neither, nor certainly a target: the user most likely means a device.
    """
    kinds = {kind for unit in lab.units for pool in unit.pools if (kind := device_kind(pool))}
    kinds |= {board.kind for board in lab.gone}
    if target in kinds and device in (target, DEVICE):
        return "auto", target
    if re.fullmatch(r"[\w.+-]+", target) and not re.fullmatch("|".join(TARGETS), target):
        import difflib

        near = difflib.get_close_matches(target, kinds, 1)
        raise RequestError(
            f"{target!r} is no kind of device here; there are: {', '.join(sorted(kinds)) or 'none'}."
            f"{f' Did you mean {near[0]}?' if near else ''} A target for TVM is auto, x86-64-v3, JSON, or a kind with"
            f' its options: -t "llvm -mcpu={target}"'
        )
    return target, device


def _apart(net: api.Model, models: Sequence[api.Model]) -> str:
    """The model's name; models of several folders that have the same name are told apart by their paths."""
    alone = sum(one.name == net.name for one in models) == 1
    return net.name if alone else file_names.made_from(f"{net.name} {net.path.absolute()}")


def with_layout(options: dict[str, Option], layout: str | None) -> dict[str, Option]:
    """Options with `--layout X`, which is short for `--option layout=X`."""
    return options if layout is None else {"layout": layout, **options}


def trials_of(_ctx: click.Context, _option: click.Parameter, value: int | None) -> int | None:
    """Check a number of trials against the maximum of a job."""
    if value is not None and value < 0:
        raise click.BadParameter(f"{value} trials make no sense. Give 1 or more, 0 for what is known, or leave it out")
    if value is not None and value > TRIALS_MAX:
        raise click.BadParameter(f"{value} trials would never end. Give {TRIALS_MAX} or fewer")
    return value


def share_of(_ctx: click.Context, _option: click.Parameter, value: str | None) -> float | None:
    """ "20%" and "0.2" become 0.2."""
    if value is None:
        return None
    try:
        share = float(value.removesuffix("%")) / (100.0 if value.endswith("%") else 1.0)
    except ValueError:
        share = 0.0
    if not 0.0 < share < 1.0:
        raise click.BadParameter(f"{value!r} is no share between 0 and 1. Write for example 20% or 0.2")
    return share


def positive_seconds_of(context: click.Context, option: click.Parameter, value: str | None) -> float | None:
    """ "30m" becomes 1800.0."""
    seconds = seconds_of(context, option, value)
    if seconds == 0:
        raise click.BadParameter("it counts from now, so it must be more than 0")
    return seconds


def _value(text: str) -> Option:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


shape_option = click.option(
    "--shape", "shapes", multiple=True, callback=shapes_of, metavar="NAME=D1,D2,...",
    help="Shape of a dynamic input; repeatable.",
)  # fmt: skip
shapes_option = click.option(
    "--shape", "shapes", multiple=True, callback=choices_of, metavar="NAME=D1,D2,...",
    help="Shape of a dynamic input; repeatable. Several shapes of an input, or a range, 1,1..512, become one file.",
)  # fmt: skip
inputs_file_option = click.option(
    "--inputs", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE.npz",
    help="Samples of inputs for the check of the result, by name. Default: random.",
)  # fmt: skip
tolerance_option = click.option(
    "--tolerance", type=click.FloatRange(0, 1, min_open=True), metavar="SHARE",
    help="Maximum difference of outputs, as a share of each output's largest value. Default: the effect of rounding.",
)  # fmt: skip
unverified_option = click.option(
    "--unverified", is_flag=True, help="Hand the network over even if no other engine can check its outputs."
)
_SETTINGS = (
    inputs_file_option,
    tolerance_option,
    unverified_option,
    click.option("--device", default=DEVICE, show_default=True, help="Kind of device to tune on: autosched devices"),
    click.option(
        "--cores", type=click.IntRange(1), metavar="N",
        help="Number of cores to tune for. Default: those of the device, half of the machine's.",
    ),
    click.option(
        "--trials", type=int, callback=trials_of, metavar="N",
        help="Trials for the whole network; 0: as --zero-shot. Default: the backend's.",
    ),
    click.option(
        "--zero-shot", is_flag=True,
        help="Do not search: use known schedules, and those that the models of `autosched models` put first.",
    ),
    click.option(
        "--backend", default=DEFAULT_BACKEND, envvar="AUTOSCHED_BACKEND", show_default=True,
        help="Backend that searches and compiles. AUTOSCHED_BACKEND sets another default.",
    ),
    click.option(
        "--layout", type=click.Choice(LAYOUTS),
        help="Memory layout of convolutions, for backends on TVM; auto tunes several. Default: the backend's.",
    ),
    click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True, help="Random seed."),
    click.option(
        "--option", "options", multiple=True, callback=options_of, metavar="KEY=VALUE",
        help="Option of the backend; repeatable.",
    ),
    click.option(
        "--learn-from", multiple=True, metavar="JOB",
        help="Warm-start the search from an ended job's measurements: 12, last, @NAME; repeatable.",
    ),
    click.option(
        "--fresh", is_flag=True, help="Ignore the record store of earlier jobs."
    ),
    click.option(
        "--target-ms", type=float, metavar="MS",
        help="End the search when the network's latency is at most this. The best known schedules are measured first.",
    ),
    click.option(
        "--improve-by", callback=share_of, metavar="PERCENT",
        help="End the search when the latency is this share below that of the best known schedules: 20%.",
    ),
    click.option(
        "--until-faster", is_flag=True,
        help="End the search as soon as a module is correct and faster than ONNX Runtime.",
    ),
    click.option(
        "--priority", type=click.IntRange(-100, 100), default=0, show_default=True,
        help="Priority; higher goes first. Waiting jobs rise, so that none starves.",
    ),
    click.option(
        "--deadline", "deadline_s", callback=positive_seconds_of, metavar="TIME",
        help="Deadline: 45s, 30m, 2h. The job gets precedence when it becomes tight.",
    ),
    click.option(
        "-l", "--label", "labels", multiple=True, callback=labels_of, metavar="KEY=VALUE",
        help="Label, for `jobs -l KEY=VALUE` or `cancel KEY=VALUE`; repeatable.",
    ),
    click.option(
        "--step-timeout", "step_timeout_s", callback=positive_seconds_of, metavar="TIME",
        help="Time limit of a step: 90s, 10m. Default: learned from earlier steps, or the daemon's.",
    ),
)  # fmt: skip


def settings_options(command: F) -> F:
    """The options that `tune` and `submit` share."""
    for option in reversed(_SETTINGS):
        command = option(command)
    return command


def _output_option(usual: str) -> Callable[[F], F]:
    text = f"A folder for all results, or FILE.so for the module and its FILE.json alone. Default: {usual}."
    return click.option("-o", "--output", type=click.Path(path_type=Path), metavar="DIR|FILE.so", help=text)


def _without_search(words: dict[str, Any]) -> None:
    """Replace the option --zero-shot by the number of trials that it means. Raises RequestError."""
    if words.pop("zero_shot"):
        if words["trials"]:
            raise RequestError(f"--zero-shot makes no trials, and --trials asks for {words['trials']}: choose one")
        words["trials"] = 0


_TARGET = 'TVM target: auto, "llvm -mcpu=...", JSON; or a kind of device, whose own target is used'


@click.command()
@click.argument("model", type=click.Path(path_type=Path), metavar="MODEL")
@click.option(
    "-t", "--target", "targets", multiple=True, default=("auto",), show_default=True,
    help=f"{_TARGET}. Repeatable: one file for several CPUs.",
)  # fmt: skip
@shapes_option
@settings_options
@_output_option("./MODEL-tuned")
@click.option("-d", "--detach", is_flag=True, help="Submit, print the job's number, and do not wait.")
@policy_options("in the private daemon")
@click.pass_obj
def tune(
    host: str | None, /, model: Path, targets: tuple[str, ...], output: Path | None, detach: bool, policy: str | None,
    goal: Goal | None, **words: Any,
) -> int:  # fmt: skip
    """Make a network faster: tune it, compile it, check its outputs and measure it.

    MODEL is an ONNX or TFLite file, a PyTorch program (.pt2), or another file that the chosen backend accepts. Starts a
    private daemon if none runs. Ctrl-C or q detaches: the job continues and can be attached again or cancelled. At a
    terminal, w shows all tasks, f failures with reasons, e what the job waits for.

    Several targets, or several shapes of an input, are as many jobs, whose networks are packed into one file. Of a
    range of sizes, --trials are for the largest; inputs between the sizes are padded, if a comparison allows it.
    """
    _without_search(words)
    shapes, least = words.pop("shapes")
    choices = [(api.load_model(model, one), target) for target in dict.fromkeys(targets) for one in shapes]
    net = choices[0][0]
    folder = output or Path(f"{net.name}-tuned")
    if len(choices) > 1 and folder.suffix == result_folder.MODULE:
        raise click.UsageError(f"{folder} is one module, and these are {len(choices)}: give a folder, --output DIR")
    names = told_apart(shapes, targets)
    folders = [result_folder.prepare(folder / name if name else folder) for name in names]
    options, device = with_layout(words.pop("options"), words.pop("layout")), words.pop("device")
    cores = words["cores"]

    def is_inner(number: int) -> bool:
        """Whether a network of a range is not searched for."""
        return least is not None and choices[number][0].shapes != shapes[-1]

    async def begin(first: int, end: int) -> list[JobId]:
        async with connected(host, told=say, serve=serve_words(policy, goal), cores=cores) as daemon:
            await _check_policy(daemon, policy, goal)
            lab = await daemon.lab()
            learn_from = await _jobs(daemon, words["learn_from"])
            jobs = []
            for number in range(first, end):
                one, target = choices[number]
                wanted, kind = placed(target, device, lab)
                kind = kind_of_cores(lab.units, kind, cores)
                how = {**words, "learn_from": learn_from} | ({"trials": 0} if is_inner(number) else {})
                settings = Settings(options=options, output=folders[number], target=wanted, device=kind, **how)
                expected = None if is_inner(number) else lambda told: say(_forecast(told))
                jobs.append(await api.submit(daemon, one, settings, _uploading(), expected=expected))
            if first == 0 and (page := await daemon.page_link(jobs[0])):
                say(f"In a browser (the link signs you in, once):  {page}")
            return jobs

    packing = f"     then pack them:  autosched export {' '.join(map(shown, folders))}" if len(choices) > 1 else ""
    jobs: list[JobId] = []

    def submitted(end: int) -> bool:
        """Submit the jobs before the one with this number that are not submitted yet. False: interrupted."""
        if len(jobs) >= end:
            return True
        more = interruptible(begin(len(jobs), end), "Interrupted before all jobs were submitted; see  autosched jobs")
        jobs.extend(more or ())
        return more is not None

    if detach:
        if not submitted(len(choices)):
            return INTERRUPTED
        data("\n".join(map(str, jobs)))
        say(f"Follow it:  autosched attach {jobs[-1]}     stop it:  autosched cancel {selected(jobs)}{packing}")
        return 0
    for number, place in enumerate(folders):
        if not submitted(min(number + AHEAD, len(choices))):
            return INTERRUPTED
        if len(choices) > 1:
            say(f"{number + 1} of {len(choices)}: {names[number]}, job {jobs[number]}")
        if (code := follow(host, jobs[number], place, brief=is_inner(number))) != 0:
            if len(jobs) < len(choices):
                say(f"The jobs that were submitted go on:  autosched jobs     all {len(choices)}:  this command again")
            elif len(choices) > 1:
                say(f"The other jobs go on:  autosched jobs{packing}")
            return code
    if len(jobs) > 1 and all(any(map(result_folder.is_module, place.iterdir())) for place in folders):
        _pack([api.load_module(place) for place in folders], folder / f"{net.name}.asn", model, least)
    return 0


def _pack(modules: Sequence[api.Module], file: Path, model: Path, least: int | None) -> None:
    """Pack networks for several CPUs or shapes into one file; for a range from `least` on, with padded inputs."""
    first, *others = modules
    padding, why = (None, "") if least is None else first.padding(others, least=least, model=model)
    path = first.export(output=file, others=others, padding=padding)
    data(f" {shown(path)}  {formatting.size(path.stat().st_size)}, {len(modules)} networks")
    if padding is not None:
        data(" inputs of all sizes are padded to the next of these; outputs were compared with ONNX Runtime's")
    if why:
        say(f"Inputs between these sizes are refused, since they cannot be padded: {why}. Give more of them: --shape")


def told_apart(shapes: Sequence[Shapes], targets: Sequence[str]) -> list[str]:
    """A folder's name for each target and each choice of shapes; empty for the only one."""
    varying = [name for name in shapes[0] if len({one[name] for one in shapes}) > 1]
    sizes = ["_".join("x".join(map(str, one[name])) for name in varying) for one in shapes]
    targets = list(dict.fromkeys(targets))
    kinds = [file_names.made_from(target) if len(targets) > 1 else "" for target in targets]
    return ["-".join(filter(None, (kind, size))) for kind in kinds for size in sizes]


def _forecast(one: Forecast) -> str:
    """Expectation for a job: "known, 9.31 ms by job 12; such a job takes 33s"."""
    found = f", {formatting.latency(one.latency_s)} by job {one.job}" if one.latency_s is not None else ""
    took = f"; such a job takes {formatting.duration(one.ready_s)}" if one.ready_s is not None else ""
    return f"forecast from earlier jobs of this network: {one.chance.value}{found}{took}"


async def _check_policy(daemon: Daemon, policy: str | None, goal: Goal | None) -> None:
    """Refuse a policy for a daemon that was already running: one job does not change it."""
    if policy is None and goal is None:
        return
    from autosched import policy_registry

    there = await daemon.policy()
    wanted = policy_registry.proper_name(policy or there.policy)
    if there.policy != wanted or there.goal != (goal or there.goal):
        words = " ".join(word for word in (policy, f"--goal {goal}" if goal else "") if word)
        raise Refused(
            f"a daemon runs already, with policy {there.policy} and goal {there.goal} for all its jobs; nothing was"
            f" submitted. Change it:  autosched policy {words}     or leave the option out"
        )


@click.command()
@click.argument("models", type=click.Path(path_type=Path), metavar="MODEL...", nargs=-1, required=True)
@click.option(
    "-t", "--target", "targets", multiple=True, default=("auto",), show_default=True,
    help=f"{_TARGET}. Repeatable: a job for each model and target.",
)  # fmt: skip
@shape_option
@settings_options
@click.option(
    "--output", type=click.Path(path_type=Path), metavar="DIR", help="Results go to DIR/MODEL-tuned. Default: ."
)
@click.option(
    "--external", is_flag=True, help="Start the jobs' clients yourself, on another machine; prints their tokens."
)
@format_option
@click.pass_obj
def submit(
    host: str | None, /, models: tuple[Path, ...], targets: tuple[str, ...], output: Path | None, external: bool,
    style: str, **words: Any,
) -> None:  # fmt: skip
    """Submit one or more models to be tuned at the same time, and return at once."""
    _without_search(words)
    shapes, options = words.pop("shapes"), with_layout(words.pop("options"), words.pop("layout"))
    loaded = [api.load_model(model, shapes) for model in models]
    nets, device = [net for net in loaded for _ in targets], words.pop("device")
    parent = (output or Path()).absolute()

    async def hand_over() -> list[Submitted]:
        async with connected(host, start=False) as daemon:
            accepted, lab = [], await daemon.lab()
            words["learn_from"] = await _jobs(daemon, words["learn_from"])
            for net in loaded:
                async with whole(net.path) as path:
                    sha256 = await daemon.upload(path, _uploading())
                inputs = await tuning.upload_inputs(daemon, words["inputs"])
                for target in targets:
                    of_target = [file_names.made_from(target)] if len(targets) > 1 else []
                    folder = "-".join((_apart(net, loaded), *of_target, "tuned"))
                    wanted, kind = placed(target, device, lab)
                    kind = kind_of_cores(lab.units, kind, words["cores"])
                    settings = Settings(options=options, output=parent / folder, target=wanted, device=kind, **words)
                    spec = net.spec(settings, sha256, inputs)
                    accepted.append(await daemon.submit(msgspec.structs.replace(spec, external=external)))
                    if style == "id":
                        data(str(accepted[-1].job))
            return accepted

    accepted = asyncio.run(hand_over())
    jobs = [one.job for one in accepted]
    forecasts = [one.forecast for one in accepted]
    if style == "json":
        secrets = [{"token": one.token} if external else {} for one in accepted]
        named: list[dict[str, object]] = [
            {"job": job, "name": net.name, "forecast": one} for job, net, one in zip(jobs, nets, forecasts, strict=True)
        ]
        return document("jobs", [one | secret for one, secret in zip(named, secrets, strict=True)])
    if style == "table" and external:
        data(table(("JOB", "TOKEN"), [(str(one.job), one.token) for one in accepted], right=(0,)))
        say(" Where one is to run:  AUTOSCHED_TOKEN=TOKEN python -m autosched.client --connect ADDRESS --job JOB")
        return None
    if style == "table":
        these = selected(jobs)
        data(f" job {these} accepted" if len(jobs) == 1 else f" jobs {these} accepted ({len(jobs)})")
        for job, one in zip(jobs, forecasts, strict=True):
            if one is not None:
                say(f" job {job}: {_forecast(one)}")
        say(f" Follow:  autosched jobs     autosched attach {jobs[-1]}     stop:  autosched cancel {these}")
    return None


def selected(jobs: Sequence[JobId]) -> str:
    """Words that select these jobs, the oldest first, and no others."""
    first, last = jobs[0], jobs[-1]
    return f"{first}-{last}" if 1 < len(jobs) == last - first + 1 else ",".join(map(str, jobs))


@click.command()
@click.argument("which", metavar="JOB")
@_output_option("as submitted")
@click.pass_obj
def attach(host: str | None, which: str, output: Path | None) -> int:
    """Follow a job to its end and fetch its results; an ended job's results at once. Keys as in `tune`."""

    async def find() -> tuple[JobView, Path]:
        async with connected(host, told=say, start=may_be_there(which)) as daemon:
            view = await view_of(daemon, which)
            return view, output or usual_folder(daemon, view)

    view, folder = asyncio.run(find())
    if view.state not in (JobState.FAILED.value, JobState.CANCELLED.value):
        folder = result_folder.prepare(folder)
    return follow(host, view.job, folder)


@click.command()
@click.argument("which", metavar="JOB")
@_output_option("as submitted")
@inputs_file_option
@tolerance_option
@unverified_option
@click.pass_obj
def compile(
    host: str | None, which: str, output: Path | None, inputs: Path | None, tolerance: float | None, unverified: bool
) -> int:  # fmt: skip
    """Compile a job's network with its best trials so far; also for running, failed and cancelled jobs."""

    async def begin() -> tuple[JobId, Path]:
        async with connected(host, told=say, start=may_be_there(which)) as daemon:
            view = await view_of(daemon, which)
            folder = result_folder.prepare(output or usual_folder(daemon, view))
            spec = _compile_spec(view, folder)
            if inputs is not None:
                spec = msgspec.structs.replace(spec, inputs=await tuning.upload_inputs(daemon, inputs))
            if tolerance is not None:
                spec = msgspec.structs.replace(spec, options={**spec.options, "tolerance": tolerance})
            if unverified:
                spec = msgspec.structs.replace(spec, options={**spec.options, "unverified": True})
            return (await daemon.submit(spec)).job, folder

    job, folder = asyncio.run(begin())
    return follow(host, job, folder)


def _compile_spec(view: JobView, folder: Path) -> JobSpec:
    if view.spec is None:
        raise RequestError(f"the daemon does not say how job {view.job} was submitted: restart it with this version")
    source = view.job
    if view.trials == 0 and not any(task.came_from for task in view.tasks):
        if view.spec.records_from is None:
            raise RequestError(f"job {view.job} has no trials to compile from. See why:  autosched explain {view.job}")
        source = view.spec.records_from
    return msgspec.structs.replace(
        view.spec, trials=0, records_from=source, learn_from=(), output=str(folder), external=False
    )


def may_be_there(which: str) -> bool:
    """Whether starting a daemon, if none runs, can help to find this job."""
    from autosched.daemon.storage.database import has_traces

    return has_traces(Config().state_dir, which)


async def view_of(daemon: Daemon, which: str) -> JobView:
    """The job that a word selects: 12, last, @NAME."""
    return await daemon.job(await answered_async(select_one(which), _numbers(daemon)))


def usual_folder(daemon: Daemon, view: JobView) -> Path:
    """The folder for a job's results if none is named; says so if the job is another user's."""
    folder = result_folder.usual(view, daemon.welcome.who)
    if view.owner != daemon.welcome.who:
        say(f"job {view.job} is of {view.owner or 'an unknown user'}, not yours: its results go to {folder.absolute()}")
    return folder


async def _jobs(daemon: Daemon, which: Sequence[str]) -> list[JobId]:
    return await answered_async(select(which), _numbers(daemon))


def _numbers(daemon: Daemon) -> Callable[[ListJobs], Awaitable[list[JobId]]]:
    async def numbers(asked: ListJobs) -> list[JobId]:
        return [view.job for view in (await daemon.link.call(asked, JobList)).jobs]

    return numbers


def _uploading() -> Callable[[int, int], None] | None:
    """A function that prints the progress of a long upload at a terminal; None elsewhere."""
    import sys

    if not sys.stderr.isatty():
        return None

    def told(have: int, total: int) -> None:
        if total > 16 * 1024**2:
            end = "\n" if have == total else "\r"
            share = formatting.share(have, total)
            sys.stderr.write(f"uploading {formatting.size(have)} of {formatting.size(total)} ({share})   {end}")
            sys.stderr.flush()

    return told
