"""Checks of a backend that measures the baseline. Other backends pass."""

from autosched.backend import Baseline, Evaluation
from autosched.conformance.backend_harness import BackendHarness, Broken, Check, NotApplicable, well_formed


def early_builds_are_compared(bench: BackendHarness) -> None:
    """baseline measures the engine that the user would run otherwise, and evaluate_early a build during the search.

    `published` is "tuned" if the build is correct and faster, and in the output folder; otherwise it is empty. The
    search goes on afterwards.
    """
    session, tuner = bench.imported("compared")
    if not session.compares:
        raise NotApplicable("its sessions do not compare: nothing is built before the search is over")
    baseline = session.baseline(bench.lease("baseline"))
    if baseline is None:
        raise NotApplicable("it has nothing to compare this model with")
    if not isinstance(baseline, Baseline):
        raise Broken(f"baseline gave a {type(baseline).__name__}", session.baseline)
    well_formed(baseline, session.baseline)
    measured = bench.measure(tuner)
    bench.learn(tuner, measured)
    session.compile_early(measured.records(), bench.lease("compile"))
    evaluation = session.evaluate_early(bench.lease("evaluate"))
    if not isinstance(evaluation, Evaluation):
        raise Broken(f"evaluate_early gave a {type(evaluation).__name__}", session.evaluate_early)
    well_formed(evaluation, session.evaluate_early)
    if "tuned" not in {timing.name for timing in evaluation.timings} or evaluation.published not in ("", "tuned"):
        names = [timing.name for timing in evaluation.timings]
        raise Broken(f"timings of {names}, published {evaluation.published!r}", session.evaluate_early)
    left = any(path.is_file() for path in (bench.workdir("compared") / "out").iterdir())
    if evaluation.published and not left:
        raise Broken("published is 'tuned', and the output folder is empty", session.evaluate_early)
    if not tuner.select(bench.subject.count, bench.lease("select")):
        raise Broken("the search selects nothing after an early build", tuner.select)


CHECKS: tuple[Check, ...] = (early_builds_are_compared,)
