"""A backend in one class: its author's code in a child process, and its results."""

import math
import sys
import threading
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

import msgspec
import pytest

from autosched.backend import Earlier, Lease, Measured, Session, Tuner
from autosched.errors import ModelRejected, RequestError, StepFailed
from autosched.model import Failure, JobSpec, Record, TaskInfo
from autosched.simple import Run, SimpleBackend, Space, search
from autosched.simple.child_process import code_of
from autosched.simple.search import decode, encode, suggest
from deadlines import DEADLINE_S
from unit.simple.toys import Fussy, Hasty, Lazy, Toy

pytestmark = pytest.mark.slow

SPACE = Space(name="s", knobs={"a": (1, 2, 3), "b": ("x", "y")}, default={"a": 9, "b": "x"})


SPEC = JobSpec(name="net", model="0" * 64)


def space(**said: object) -> Space:
    return Space(**({"name": "toy", "knobs": {"how": ("well",)}, "default": {"how": "well"}} | said))  # type: ignore[arg-type]


def lease(stage: str) -> Lease:
    return Lease(stage=stage, units=("host/0",), cores=(), timeout_s=60.0)


@pytest.fixture
def opened(tmp_path: Path) -> Callable[..., tuple[Session, Tuner]]:
    def open_(text: str, backend: type[Toy] = Toy) -> tuple[Session, Tuner]:
        (tmp_path / "model").write_text(text)
        (tmp_path / "out").mkdir(exist_ok=True)
        session = backend().open(SPEC, tmp_path / "model", tmp_path, tmp_path / "out", 1)
        network = session.import_network(lease("import"))
        return session, session.tuner(network.tasks[0], 0)

    return open_


def measured(tuner: Tuner) -> dict[str, Measured]:
    """Returns all choices, built and measured, by their `how`."""
    candidates = tuner.select(99, lease("select"))
    found = list(tuner.profile(tuner.build(candidates, lease("build")), lease("profile")))
    assert sorted(one.candidate for one in found) == sorted(candidates)
    return {str(decode_how(one.candidate)): one for one in found}


def decode_how(candidate: bytes) -> str:
    return candidate.decode().split('"')[3]


def test_each_misfortune_is_a_failure_of_its_own_and_spares_the_next_choice(
    opened: Callable[..., tuple[Session, Tuner]],
) -> None:
    words = (
        "well build-fails build-raises build-crashes build-ends run-crashes run-refuses run-is-wrong run-is-nan"
        " measures-nan fast"
    )
    found = measured(opened(words)[1])
    failures = {how: one.failure for how, one in found.items() if one.failure is not None}
    assert failures == {
        "build-fails": Failure.BUILD_ERROR, "build-raises": Failure.BUILD_ERROR, "build-crashes": Failure.BUILD_CRASH,
        "build-ends": Failure.BUILD_CRASH, "run-crashes": Failure.RUN_CRASH, "run-refuses": Failure.RUN_CRASH,
        "run-is-wrong": Failure.WRONG_RESULT, "run-is-nan": Failure.WRONG_RESULT,
    }  # fmt: skip
    assert found["build-raises"].detail.startswith("KeyError: 'key' (at toys.py:")
    assert found["build-crashes"].detail == "it was killed by SIGSEGV"
    assert found["build-ends"].detail == "it ended with exit code 3"
    assert found["run-is-wrong"].detail == "its outputs differ from those of the default by 1, allowed 1e-06"
    assert (found["well"].latency_s, found["fast"].latency_s) == ((0.5,), (0.1,))


def test_a_build_has_the_digest_of_its_code(opened: Callable[..., tuple[Session, Tuner]]) -> None:
    _, tuner = opened("well fast code-is-nothing code-is-no-digest")
    built = {decode_how(one.candidate): one for one in tuner.build(tuner.select(99, lease("select")), lease("build"))}
    assert {how: one.code for how, one in built.items() if one.failure is None} == {
        "well": b"well".hex(), "fast": b"fast".hex(), "code-is-nothing": "",
    }  # fmt: skip
    refused = built["code-is-no-digest"]
    assert refused.failure is Failure.BUILD_ERROR
    assert "at most 64 hexadecimal digits" in refused.detail
    assert "'xyz'" in refused.detail


def test_a_choice_that_never_ends_is_given_up(opened: Callable[..., tuple[Session, Tuner]]) -> None:
    found = measured(opened("well build-hangs", Hasty)[1])
    assert found["build-hangs"].failure is Failure.BUILD_TIMEOUT
    assert found["well"].latency_s == (0.5,)


def test_a_job_publishes_the_faster_choice(opened: Callable[..., tuple[Session, Tuner]], tmp_path: Path) -> None:
    session, tuner = opened("well fast")
    records = [
        Record(task=1, number=trial, candidate=one.candidate, latency_s=one.latency_s)
        for trial, one in enumerate(measured(tuner).values())
    ]
    session.compile(records, lease("compile"))
    evaluation = session.evaluate(lease("evaluate"))
    assert [timing.median_s for timing in evaluation.timings] == [1.0, 0.2]  # weight 2
    assert (evaluation.published, evaluation.outputs_equal, evaluation.max_abs_error) == ("tuned", True, 0.0)
    assert '"how": "fast"' in (tmp_path / "out/net.json").read_text()


def test_a_kill_ends_the_child_and_the_session_goes_on(opened: Callable[..., tuple[Session, Tuner]]) -> None:
    session, tuner = opened("well build-hangs")
    mine, errors = lease("build"), []

    def work() -> None:
        try:
            tuner.build([encode({"how": "build-hangs"})], mine)
        except StepFailed as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    session.kill(mine)
    thread.join(DEADLINE_S)
    assert str(errors[0]) == "build was killed"
    assert tuner.build([encode({"how": "well"})], lease("build"))[0].failure is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it is empty"),
        ("bad-space", "has these numbers of values: {'how': 0}"),
        ("run-crashes well", "without any tuning already, measure of toy with"),
        ("build-raises well", "KeyError: 'key' (at toys.py:"),
    ],
)
def test_a_model_without_a_working_default_is_rejected(
    opened: Callable[..., tuple[Session, Tuner]], text: str, said: str
) -> None:
    with pytest.raises(ModelRejected) as caught:
        opened(text)
    assert said in str(caught.value)


def test_a_class_that_implements_nothing_is_told_so(opened: Callable[..., tuple[Session, Tuner]]) -> None:
    with pytest.raises(ModelRejected, match=r"spaces\(\): NotImplementedError: Lazy has no method spaces\(\)$"):
        opened("well", Lazy)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("method", "returned", "said"),
    [
        ("measure", 0.5, "measure() must return Run((seconds, ...), (output, ...)), it returned a float. Mend"),
        ("measure", None, "it returned nothing"),
        ("measure", Run(0.5, (1.0,)), "it returned Run(a float, a tuple of float)"),  # type: ignore[arg-type]
        ("measure", Run((0.5, None)), "it returned Run(a tuple of float and NoneType, a tuple)"),  # type: ignore[arg-type]
        ("measure", Run(()), "it measured no latency"),
        ("measure", Run((0.5, math.nan)), "without any tuning already, measure of toy with"),
        ("measure", Run((0.5, math.nan)), "failed: it measured a latency of nan s"),
        ("measure", Run((0.5,), (math.inf,)), "failed: it computed inf, with which nothing can be compared"),
        ("spaces", None, "spaces() must return [Space(...), ...], it returned nothing"),
        ("spaces", {1: 2}, "it returned a dict"),
        ("spaces", [1, "a"], "it returned a list of int and str"),
        ("spaces", [space(knobs={"how": "sum"})], "'how' of 'toy' has a str"),
        ("spaces", [space(knobs={"how": 4})], "'how' of 'toy' has an int"),
        ("spaces", [space(weight=0.5)], "a Space that cannot be used: weight: expected a whole number, got a number"),
        ("spaces", [space(default={"how": []})], "a Space that cannot be used: default"),
    ],
)
def test_what_a_method_must_return_is_said(
    opened: Callable[..., tuple[Session, Tuner]], monkeypatch: pytest.MonkeyPatch, method: str, returned: object,
    said: str,
) -> None:  # fmt: skip
    monkeypatch.setenv("AUTOSCHED_DEBUG", "1")
    monkeypatch.setattr(Toy, method, lambda *_: returned)
    with pytest.raises(ModelRejected) as caught:
        opened("well")
    assert said in str(caught.value)


def test_a_debugger_stops_at_what_the_author_s_code_raises(
    opened: Callable[..., tuple[Session, Tuner]], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, tuner = opened("well build-raises")
    candidates = tuner.select(2, lease("select"))
    monkeypatch.setenv("AUTOSCHED_DEBUG", "1")
    assert {one.failure for one in tuner.build(candidates, lease("build"))} == {None, Failure.BUILD_ERROR}
    monkeypatch.setenv("AUTOSCHED_DEBUG", "stop")
    with pytest.raises(KeyError, match="key"):
        tuner.build(candidates, lease("build"))


@pytest.mark.parametrize("values", [range(1, 4), [1, 2, 3]])
def test_any_sequence_is_the_values_of_a_knob(
    opened: Callable[..., tuple[Session, Tuner]], monkeypatch: pytest.MonkeyPatch, values: Sequence[int]
) -> None:
    monkeypatch.setenv("AUTOSCHED_DEBUG", "1")
    monkeypatch.setattr(Toy, "spaces", lambda *_: (one for one in [space(knobs={"how": values}, default={"how": 1})]))
    monkeypatch.setattr(Toy, "measure", lambda *_: Run((0.5,)))
    assert len(opened("well")[1].select(9, lease("select"))) == 3


def test_a_misspelt_method_is_named(
    opened: Callable[..., tuple[Session, Tuner]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOSCHED_DEBUG", "1")
    monkeypatch.setattr(Toy, "mesure", Toy.measure, raising=False)
    monkeypatch.delattr(Toy, "measure")
    with pytest.raises(ModelRejected, match=r"Toy has no method measure\(\) \(did you mean 'mesure'\?\)"):
        opened("well")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("spaces-exit", "did not answer: it ended with exit code 3. Mend it"),
        (
            "spaces-lack-memory",
            "did not answer: it was killed by SIGKILL, as the system does when memory runs out. Try a smaller model",
        ),
    ],
)
def test_how_a_child_died_is_said(opened: Callable[..., tuple[Session, Tuner]], text: str, said: str) -> None:
    with pytest.raises(ModelRejected) as caught:
        opened(text)
    assert str(caught.value) == f"the backend's spaces() {said}"


def test_a_module_that_raises_in_a_child_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "strange.py").write_text(
        "import sys\nif 'autosched.simple.child_process' in str(sys.orig_argv): import numpi\n"
        "from autosched.simple import SimpleBackend\nclass Strange(SimpleBackend): pass"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    session = import_module("strange").Strange().open(SPEC, tmp_path, tmp_path, tmp_path, 1)
    with pytest.raises(
        StepFailed, match=r"of its own: ModuleNotFoundError: No module named 'numpi' \(at strange.py:2\)"
    ):
        session.import_network(lease("import"))


def test_a_class_that_no_child_can_import_is_told_so(opened: Callable[..., tuple[Session, Tuner]]) -> None:
    class Hidden(Toy):
        pass

    with pytest.raises(StepFailed, match="cannot be imported in a process of its own"):
        opened("well", Hidden)


def test_options_are_named(tmp_path: Path) -> None:
    spec = JobSpec(name="net", model="0" * 64, backend="toy", options={"colour": "red"})
    with pytest.raises(RequestError, match=r"options of backend toy: there is none named 'colour'. There are: none"):
        Toy().open(spec, tmp_path, tmp_path, tmp_path, 1)
    for options, said in (({"caer": 1}, "none named 'caer' (did you mean 'care'?). There"), ({"care": "x"}, "care: ")):
        with pytest.raises(RequestError) as caught:
            Fussy().open(msgspec.structs.replace(spec, options=options), tmp_path, tmp_path, tmp_path, 1)
        assert said in str(caught.value)


# What makes two tasks the same ----------------------------------------------------------------------------------------


def workload(folder: Path, kind: type[SimpleBackend], model: str = "0", **options: int) -> str:
    spec = JobSpec(name="net", model=model * 64, options=options)
    session = kind().open(spec, folder / "model", folder, folder / "out", 1)
    return session.import_network(lease("import")).tasks[0].workload


def test_failures_are_shared_by_the_same_task_of_the_same_model_options_and_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOSCHED_DEBUG", "1")
    (tmp_path / "model").write_text("well fast")
    seen = [workload(tmp_path, Fussy), workload(tmp_path, Fussy, care=0)]
    assert seen == [workload(tmp_path, Fussy)] * 2  # the default was named
    seen += [workload(tmp_path, Fussy, model="1"), workload(tmp_path, Fussy, care=1)]
    monkeypatch.setattr("autosched.simple.session.code_of", lambda kind: "mended")
    seen.append(workload(tmp_path, Fussy))
    assert len(set(seen)) == 4


def test_a_mended_file_is_other_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "lone.py").write_text("class B: pass")
    (tmp_path / "packed/deeper").mkdir(parents=True)
    (tmp_path / "packed/__init__.py").write_text("class B: pass")
    for module, touched in (("lone", "lone.py"), ("packed", "packed/deeper/helper.py")):
        kind = import_module(module).B
        before = code_of(kind)
        (tmp_path / "beside.py").write_text(module)
        assert code_of(kind) == before
        (tmp_path / touched).write_text("class B: 'mended'")
        assert code_of(kind) != before
        del sys.modules[module]


def test_an_option_that_must_be_given_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Toy, "Options", msgspec.defstruct("Needy", [("care", int)], frozen=True))
    with pytest.raises(RequestError, match=r"'care' must be given: --option care=.*There are: care"):
        Toy().read("toy", {})


def test_what_suggest_must_return_is_said(
    opened: Callable[..., tuple[Session, Tuner]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOSCHED_DEBUG", "1")
    monkeypatch.setattr(Toy, "suggest", lambda *_: None)
    with pytest.raises(StepFailed, match=r"suggest\(\) must return \[choice, ...\], it returned nothing"):
        opened("well")[1].select(1, lease("select"))


# Learning from earlier jobs -------------------------------------------------------------------------------------------


def earlier(workload: str, seconds: dict[str, float], backend: str = SPEC.backend) -> Earlier:
    records = [
        Record(task=1, number=trial, candidate=encode({"how": how}), latency_s=(s,) if s else ())
        for trial, (how, s) in enumerate(seconds.items())
    ]
    spec = msgspec.structs.replace(SPEC, model="1" * 64, backend=backend, options={"care": 7})
    return Earlier(3, spec, Path("elsewhere"), {1: workload}, tuple(records))


@pytest.fixture
def pupil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Session, TaskInfo]:
    """Yields a session with a task whose knob has ten values, without measurements."""
    monkeypatch.setenv("AUTOSCHED_DEBUG", "1")
    (tmp_path / "model").write_text("a b c d e f g h i j")
    session = Fussy().open(SPEC, tmp_path / "model", tmp_path, tmp_path / "out", 1)
    return session, session.import_network(lease("import")).tasks[0]


def test_the_best_of_earlier_jobs_is_tried_first(pupil: tuple[Session, TaskInfo], tmp_path: Path) -> None:
    session, task = pupil
    theirs = workload(tmp_path, Fussy, model="1", care=7)
    assert theirs != task.workload
    large = earlier(theirs, {"a": 90.0, "b": 30.0, "c": 60.0, "d": 0.0, "no longer there": 45.0})
    small = earlier(theirs, {"a": 0.9, "b": 0.8, "j": 0.5, "h": 0.7})
    session.learn([large, small, earlier("a workload of another task", {"i": 1e-9})], lease("import"))
    tuner = session.tuner(task, 0)
    said = [decode_how(one) for one in tuner.select(6, lease("select"))]
    assert said[:4] == ["b", "j", "h", "a"]  # relative to the best of its job
    assert len(set(said)) == 6
    tuner.update([Measured(encode({"how": "b"}), (1.0,))], lease("update"))
    assert [decode_how(one) for one in tuner.select(2, lease("select"))] == ["j", "h"]


def test_a_job_of_another_backend_teaches_nothing(pupil: tuple[Session, TaskInfo]) -> None:
    with pytest.raises(
        RequestError, match=f"job 3 was tuned with backend 'other', which teaches '{SPEC.backend}' nothing"
    ):
        pupil[0].learn([earlier("w", {}, backend="other")], lease("import"))


# Search ---------------------------------------------------------------------------------------------------------------


def test_a_small_space_is_used_up_without_a_repeat() -> None:
    tried = []
    for _ in range(4):
        found = suggest(SPACE, 0, tried, 2)
        tried += [(choice, 1.0) for choice in found]
    assert len(tried) == search.size(SPACE) == 6
    assert len({encode(choice) for choice, _ in tried}) == 6


def test_a_vast_space_costs_nothing() -> None:
    vast = Space(name="v", knobs={f"k{i}": tuple(range(100)) for i in range(6)}, default={})
    assert search.size(vast) == 10**12
    assert len(suggest(vast, 0, [], 64)) == 64


def test_half_of_the_suggestions_are_near_the_best() -> None:
    knobs = {f"k{i}": tuple(range(10)) for i in range(8)}
    wide = Space(name="w", knobs=knobs, default={})
    best = dict.fromkeys(knobs, 5)
    found = suggest(wide, 1, [(best, 1e-3), (dict.fromkeys(knobs, 0), None)], 40)
    near = [choice for choice in found if sum(choice[knob] != 5 for knob in knobs) == 1]
    assert len(near) >= 15


@pytest.mark.parametrize(
    "text", [b"", b"\xff", b"[]", b'{"a": 1}', b'{"a": 4, "b": "x"}', b"[" * 100_000, b'{"a":[],"b":1}']
)
def test_what_is_no_choice_is_none(text: bytes) -> None:
    assert decode(SPACE, text) is None


def test_choices_and_the_default_survive() -> None:
    for choice in ({"a": 1, "b": "y"}, SPACE.default):
        assert decode(SPACE, encode(choice)) == choice
    assert encode({"b": "x", "a": 1}) == encode({"a": 1, "b": "x"})


def test_a_step_whose_time_is_over_ends(opened: Callable[..., tuple[Session, Tuner]]) -> None:
    tuner = opened("well build-hangs")[1]
    for timeout_s in (0.01, 1.0):  # before its child has begun, and on most machines after it
        short = Lease(stage="build", units=("host/0",), cores=(), timeout_s=timeout_s)
        with pytest.raises(StepFailed, match=r"the time of the step was over after [01] of 2 choices"):
            tuner.build([encode({"how": how}) for how in ("build-hangs", "well")], short)
