"""Checks of the stages' answers, on which the client and the user's records rely."""

import re
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from math import isfinite
from pathlib import Path

from msgspec.structs import replace

from autosched import file_names
from autosched.backend import BACKEND_API, OPTIONAL, Built, Evaluation, Measured, Network, Session, check_api
from autosched.conformance.backend_harness import (
    LEASE_S,
    BackendHarness,
    Broken,
    Check,
    NotApplicable,
    answers_each,
    parting,
    well_formed,
)
from autosched.conformance.plugin_errors import written
from autosched.conformance.search_checks import FOREIGN
from autosched.errors import RequestError
from autosched.model import CODE_DIGEST_PATTERN, Failure, Record

FILE_NAME = re.compile(file_names.PATTERN)


def the_interface_version_is_accepted(bench: BackendHarness) -> None:
    """The backend states the version of the interface that it was written for, and this autosched supports it.

    Set `api = (major, minor)` on the class to the version whose documentation you have read.
    """
    try:
        check_api(type(bench.backend).__name__, getattr(bench.backend, "api", None))
    except RequestError as error:
        raise Broken(f"{error} (here: {BACKEND_API})", type(bench.backend)) from None


def a_session_opens(bench: BackendHarness) -> None:
    """open() accepts the model, the target and the options of this suite.

    No other check can run before. Options given with --option must be those of the backend.
    """
    try:
        bench.open("opened")
    except RequestError as error:
        raise Broken(str(error), bench.backend.open) from None


def what_is_promised_is_there(bench: BackendHarness) -> None:
    """The attributes of a session say which optional methods it has: learns, ranks, compares and movable.

    A method without its attribute is never called; an attribute without its methods fails in a job.
    """
    session = bench.session
    kinds = type(session).__mro__[: type(session).__mro__.index(Session)]
    for attribute, methods in OPTIONAL.items():
        own = [name for name in methods if any(name in vars(kind) for kind in kinds)]
        if getattr(session, attribute) and (lacking := [name for name in methods if name not in own]):
            raise Broken(f"{attribute} is true, and there is no {' and no '.join(lacking)}", type(session))
        if own and attribute not in vars(session) and not any(attribute in vars(kind) for kind in kinds):
            raise Broken(f"there is a {own[0]}, and {attribute} = True is missing", getattr(session, own[0]))


def the_model_is_imported(bench: BackendHarness) -> None:
    """import_network returns the network of this suite's model.

    No other check can run before. A simple backend is asked for its spaces, and the default of each is built and
    measured: all of that must work. Run it alone:  autosched plugin run NAME --stage import --pdb
    """
    at: object = type(bench.session).import_network
    if not written(at):  # for a simple backend, any of the author's three methods may be at fault
        at = type(bench.backend)
    try:
        network = bench.network
    except RequestError as error:
        raise Broken(str(error), at) from None
    if not isinstance(network, Network):
        raise Broken(f"it gave a {type(network).__name__}", at)


def an_unknown_option_is_refused(bench: BackendHarness) -> None:
    """An unknown option is refused with a RequestError that names it.

    A typing mistake must not silently tune with defaults: msgspec.convert into a Struct with forbid_unknown_fields.
    """
    try:
        bench.open("unknown", {"no_such_option": 1})
    except RequestError as error:
        if "no_such_option" not in str(error):
            raise Broken(f"the message does not name the option: {error}", bench.backend.open) from None
    else:
        raise Broken("open() took the option no_such_option=1", bench.backend.open)


def garbage_is_no_model(bench: BackendHarness) -> None:
    """A file that is no model is refused with a ModelRejected, or else it is tuned.

    Users see any other exception as a bug of the backend. Say what the file should have been.
    """
    path = bench.folder / "garbage.bin"
    path.write_bytes(bytes(range(256)) * 16)
    try:
        bench.open("garbage", model=path).import_network(bench.lease("import"))
    except RequestError:
        return  # ModelRejected is a RequestError


def the_network_is_valid(bench: BackendHarness) -> None:
    """Tasks count from 1, no two are equal, and every field is within its bounds.

    Name, workload and shape are short texts, weight is 1 or more, flops 0 or more, batch 1 or more.
    """
    at = type(bench.session).import_network
    network = bench.network
    well_formed(network, at)
    if [info.task for info in network.tasks] != list(range(1, len(network.tasks) + 1)) or not network.tasks:
        raise Broken(f"the tasks are numbered {[info.task for info in network.tasks]}", at)
    if network.batch < 1 or network.default_trials < 0:
        raise Broken(f"batch is {network.batch}, default_trials is {network.default_trials}", at)


def the_network_is_the_same_again(bench: BackendHarness) -> None:
    """Importing the model in another session gives the same tasks in the same order.

    A resumed job finds its records by task number, and other jobs by workload: derive both from the model alone.
    """
    again = bench.open("again").import_network(bench.lease("import"))
    if again.tasks != bench.network.tasks:
        raise Broken(f"of the tasks, {parting(bench.network.tasks, again.tasks)}", type(bench.session).import_network)


def build_answers_each_candidate(bench: BackendHarness) -> None:
    """build gives one Built for each candidate, in their order, also for those that failed.

    A candidate that does not build is Built(candidate, failure=..., detail="the compiler's own words").
    """
    found, at = bench.round, bench.tuner().build
    if not all(isinstance(one, Built) for one in found.built):
        raise Broken(f"build gave a {type(found.built[0]).__name__}", at)
    answers_each("build", [one.candidate for one in found.built], found.candidates, at)


def equal_candidates_have_equal_code(bench: BackendHarness) -> None:
    """The name of a candidate's code (`Built.code`) is the same when another session builds the candidate.

    Known code need not be measured again. `autosched.model.code_name` makes the name. Make it from what runs only: no
    paths, no times of day.
    """
    found, at = bench.round, bench.tuner().build
    if not any(one.code for one in found.built):
        raise NotApplicable("this backend does not name its object code")
    for one in found.built:
        if not re.fullmatch(CODE_DIGEST_PATTERN, one.code):
            raise Broken(f"the digest of the code is {one.code!r}", at)
    _, tuner = bench.imported("again")
    again = list(tuner.build(found.candidates, bench.lease("build")))
    if [one.code for one in again] != [one.code for one in found.built]:
        raise Broken(f"of the digests, {parting([one.code for one in found.built], [one.code for one in again])}", at)


def artifacts_lie_in_the_work_folder(bench: BackendHarness) -> None:
    """Built files are in the job's work folder, where they are found and deleted.

    Use the `workdir` of open(). Two jobs never share one.
    """
    built = bench.tuner().build(bench.round.candidates, bench.lease("build"))
    for one in built:
        if one.artifact is not None and not _below(one.artifact, bench.workdir("shared")):
            raise Broken(f"{one.artifact} is not below {bench.workdir('shared')}", bench.tuner().build)


def _below(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())


def a_build_is_measured_in_another_session(bench: BackendHarness) -> None:
    """A session that has only imported the tasks measures builds of another session, wherever the artifact is.

    `Built.artifact` is a file or folder with all that `profile` needs; another host gets nothing else. Data that does
    not depend on the candidate, such as the expected result, is created by `profile` itself.
    """
    if not bench.session.movable:
        raise NotApplicable("its sessions are not movable: all stages of a job run on one host")
    tasks, there = bench.network.tasks, bench.open("elsewhere")
    if (found := there.import_tasks(bench.lease("import")).tasks) != tasks:
        raise Broken(f"of the tasks, {parting(tasks, found)}", there.import_tasks)
    good = [one.candidate for one in bench.round.measured if one.latency_s]
    tuner = there.tuner(tasks[0], 0)
    built = [
        _moved(one, bench.workdir("elsewhere") / "moved") for one in bench.tuner().build(good, bench.lease("build"))
    ]
    for measured in tuner.profile(built, bench.lease("profile")):
        if measured.failure is not None:
            raise Broken(f"there it became a {measured.failure}: {measured.detail}", tuner.profile)


def _moved(built: Built, folder: Path) -> Built:
    """The build with its artifact moved to another folder."""
    if built.artifact is None:
        return built
    folder.mkdir(parents=True, exist_ok=True)
    return replace(built, artifact=Path(shutil.move(built.artifact, folder / built.artifact.name)))


def a_round_is_measured_by_several_devices(bench: BackendHarness) -> None:
    """Two threads measure the halves of a round at once, each with its own lease; each answers its own half.

    Sessions allow this with `parallel_profile = True`. State of `profile` must belong to the call, or be guarded by a
    lock.
    """
    if not bench.session.parallel_profile:
        raise NotApplicable("its sessions have no parallel_profile: one device measures a round")
    good, tuner = [one.candidate for one in bench.round.measured if one.latency_s], bench.tuner()
    built = list(tuner.build(good, bench.lease("build")))
    halves = built[::2], built[1::2]
    begin = threading.Barrier(len(halves))

    def measured(half: list[Built]) -> list[Measured]:
        begin.wait(LEASE_S)
        return list(tuner.profile(half, bench.lease("profile")))

    with ThreadPoolExecutor(len(halves)) as pool:
        found = list(pool.map(measured, halves))
    for half, answers in zip(halves, found, strict=True):
        if sorted(one.candidate for one in answers) != sorted(one.candidate for one in half):
            raise Broken(f"of {len(half)} builds it answered {len(answers)}, or others", tuner.profile)
        for one in answers:
            if one.failure is not None:
                raise Broken(f"beside another one it became a {one.failure}: {one.detail}", tuner.profile)


def a_candidate_that_makes_no_sense_fails_alone(bench: BackendHarness) -> None:
    """Invalid candidates fail, or run; the other candidates of the round are not affected.

    Records of other backends come in by restore, and are measured again. Return a failure, do not raise.
    """
    tuner = bench.tuner()
    candidates = [FOREIGN, *bench.round.candidates]
    built = list(tuner.build(candidates, bench.lease("build")))
    answers_each("build", [one.candidate for one in built], candidates, tuner.build)
    measured = list(tuner.profile(built, bench.lease("profile")))
    answers_each("profile", sorted(one.candidate for one in measured), sorted(candidates), tuner.profile)


def a_failed_build_is_passed_on(bench: BackendHarness) -> None:
    """profile passes failed builds on, with their failure, and does not run them.

    `if one.failure is not None: yield Measured(one.candidate, (), one.failure, one.detail)`
    """
    tuner = bench.tuner()
    built = [Built(bench.round.candidates[0], failure=Failure.BUILD_ERROR, detail="on purpose")]
    (measured,) = tuner.profile(built, bench.lease("profile"))
    if measured.failure is not Failure.BUILD_ERROR or measured.latency_s:
        raise Broken(f"it became {measured}", tuner.profile)


def profile_answers_each_candidate(bench: BackendHarness) -> None:
    """profile yields one Measured for each Built, in any order.

    Each costs the user a trial. A candidate that cannot be measured is a failure: run error, run timeout, run crash,
    wrong result.
    """
    found, at = bench.round, bench.tuner().profile
    if not all(isinstance(one, Measured) for one in found.measured):
        raise Broken(f"profile yielded a {type(found.measured[0]).__name__}", at)
    answers_each("profile", sorted(one.candidate for one in found.measured), sorted(found.candidates), at)


def latencies_are_latencies(bench: BackendHarness) -> None:
    """Latencies are seconds above 0: never NaN, infinite, negative, or of another number type.

    A measurement without a meaningful number failed: Failure.RUN_ERROR. A single NaN would win or spoil a search.
    """
    at = bench.tuner().profile
    for one in bench.round.measured:
        for seconds in one.latency_s:
            if not isinstance(seconds, float) or not isfinite(seconds) or not 0 < seconds <= 1e6:
                raise Broken(f"a latency of {seconds!r} ({type(seconds).__name__})", at)


def a_measurement_is_a_latency_or_a_failure(bench: BackendHarness) -> None:
    """Each Measured has either latencies or a failure, and at least one candidate of the first round has latencies.

    A record cannot have both or neither. If all fail, the detail of the failure says why.
    """
    measured, at = bench.round.measured, bench.tuner().profile
    for one in measured:
        if bool(one.latency_s) == (one.failure is not None):
            raise Broken(f"latencies {one.latency_s}, failure {one.failure}", at)
    if all(one.failure is not None for one in measured):
        raise Broken(f"all failed, the first because: {measured[0].failure}: {measured[0].detail}", at)


def compare_ends_with_the_default(bench: BackendHarness) -> None:
    """compare measures in turns and yields each candidate once; the default comes last, in the builds and in the
    results.

    Take several turns, and yield each candidate's latencies after the last one.
    """
    tuner = bench.tuner()
    if (default := tuner.default()) is None:
        raise NotApplicable("this task has no default, so nothing is compared")
    candidates = [*[one for one in bench.round.candidates if one != default][:2], default]
    built = list(tuner.build(candidates, bench.lease("build")))
    measured = list(tuner.compare(built, bench.lease("profile")))
    answers_each("compare", sorted(one.candidate for one in measured), sorted(candidates), tuner.compare)
    if measured[-1].candidate != default:
        raise Broken("the default is not the last one", tuner.compare)


def the_job_ends_with_an_evaluation(bench: BackendHarness) -> None:
    """compile takes the records, and evaluate measures "default" and "tuned" and compares their outputs.

    Both in seconds; `published` names the one in the output folder.
    """
    session, evaluation = bench.finished
    if not isinstance(evaluation, Evaluation):
        raise Broken(f"evaluate gave a {type(evaluation).__name__}", session.evaluate)
    well_formed(evaluation, session.evaluate)
    names = {timing.name for timing in evaluation.timings}
    if not {"default", "tuned"} <= names or evaluation.published not in names:
        raise Broken(f"timings of {sorted(names)}, published {evaluation.published!r}", session.evaluate)
    numbers = [s for timing in evaluation.timings for s in (timing.median_s, timing.low_s, timing.high_s)]
    if not all(isfinite(seconds) and seconds > 0 for seconds in numbers):
        raise Broken(f"the evaluation has latencies of {numbers} s", session.evaluate)


def a_job_without_luck_ends_too(bench: BackendHarness) -> None:
    """If no candidate ever worked, the network is compiled without tuning.

    The records of compile may all be failures; `best_s` of each is None.
    """
    session, tuner = bench.imported("unlucky")
    candidates = tuner.select(bench.subject.count, bench.lease("select"))
    failed = [
        Record(task=1, number=number, candidate=candidate, failure=Failure.RUN_ERROR)
        for number, candidate in enumerate(candidates)
    ]
    session.compile(failed, bench.lease("compile"))
    session.evaluate(bench.lease("evaluate"))


def results_have_plain_names(bench: BackendHarness) -> None:
    """Files in the output folder have names of letters, digits, dots, dashes and underscores.

    They are sent to the user who submitted the job, by these names. Folders are not sent.
    """
    session, _ = bench.finished
    for path in (bench.workdir("finished") / "out").iterdir():
        if path.is_dir() or FILE_NAME.fullmatch(path.name) is None:
            raise Broken(f"{path.name!r} in the output folder", session.evaluate)


CHECKS: tuple[Check, ...] = (
    the_interface_version_is_accepted,
    a_session_opens,
    the_model_is_imported,
    what_is_promised_is_there,
    an_unknown_option_is_refused,
    garbage_is_no_model,
    the_network_is_valid,
    the_network_is_the_same_again,
    build_answers_each_candidate,
    equal_candidates_have_equal_code,
    artifacts_lie_in_the_work_folder,
    a_build_is_measured_in_another_session,
    a_round_is_measured_by_several_devices,
    a_candidate_that_makes_no_sense_fails_alone,
    a_failed_build_is_passed_on,
    profile_answers_each_candidate,
    latencies_are_latencies,
    a_measurement_is_a_latency_or_a_failure,
    compare_ends_with_the_default,
    the_job_ends_with_an_evaluation,
    a_job_without_luck_ends_too,
    results_have_plain_names,
)
