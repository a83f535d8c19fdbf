"""Results of a backend become records, failed trials or failed steps with a message, and never break the connection."""

from math import inf, nan
from pathlib import Path
from typing import Any

import msgspec
import pytest

from autosched.backend import Built, Evaluation, Measured, Network, Timing
from autosched.client import backend_boundary
from autosched.errors import RequestError, StepFailed
from autosched.model import Failure, Record, TaskInfo


@pytest.mark.parametrize("latency_s", [(nan,), (inf,), (-1e-3,), (0.0,), (1e-3, nan), (2e6,), ("fast",), (None,), 5])
def test_an_invalid_latency_is_a_failure(latency_s: Any) -> None:
    found = backend_boundary.measured(Measured(b"a", latency_s), [b"a"])
    assert (found.failure, found.latency_s) == (Failure.RUN_ERROR, ())
    assert found.detail.startswith("the backend measured nonsense: ")


def test_accepted_measurements_can_be_records() -> None:
    strange = [
        Measured(b"a", (1, True), detail="x" * 9_000, build_s=nan, profile_s=-1.0),
        Measured(b"a", (0.1,) * 5_000),
        Measured(b"a", (0.1,), failure="run crash"),  # type: ignore[arg-type]
        Measured(b"a", (), failure="exploded"),  # type: ignore[arg-type]
    ]
    for one in strange:
        found = backend_boundary.measured(one, [b"a"])
        record = Record(
            task=1, number=0, candidate=found.candidate, latency_s=found.latency_s, failure=found.failure,
            detail=found.detail, build_s=found.build_s, profile_s=found.profile_s,
        )  # fmt: skip
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(record), type=Record) == record
        assert bool(found.latency_s) != bool(found.failure)


def test_numbers_of_other_kinds_are_made_floats() -> None:
    numpy = pytest.importorskip("numpy")
    (seconds,) = backend_boundary.measured(Measured(b"a", (numpy.float32(0.5),)), [b"a"]).latency_s
    assert (type(seconds), seconds) == (float, 0.5)


@pytest.mark.parametrize("one", [None, 1.0, Measured(b"b", (1.0,)), Built(b"a")])
def test_a_result_that_is_no_measurement_of_the_round_fails_the_step(one: Any) -> None:
    with pytest.raises(StepFailed, match="one Measured for each candidate"):
        backend_boundary.measured(one, [b"a"])


@pytest.mark.parametrize("found", [None, 5])
def test_a_profile_without_results_fails_the_step(found: Any) -> None:
    with pytest.raises(StepFailed, match=f"profile answered with a {type(found).__name__}"):
        backend_boundary.each(found)


def test_a_candidate_is_measured_once() -> None:
    left = [b"a", b"b"]
    backend_boundary.measured(Measured(b"a", (1.0,)), left)
    assert left == [b"b"]
    with pytest.raises(StepFailed):
        backend_boundary.measured(Measured(b"a", (1.0,)), left)


@pytest.mark.parametrize("found", [None, 7, "abc", b"abc", {b"a"}, ["a"], [b"x" * 200_001], [bytearray(b"a")]])
def test_candidates_are_bytes(found: Any) -> None:
    with pytest.raises(StepFailed, match="select"):
        backend_boundary.candidates(found, 8)
    assert backend_boundary.candidates((b"a", b"b", b"c"), 2) == [b"a", b"b"]


@pytest.mark.parametrize("found", [None, "garbage", [], [Built(b"b"), Built(b"a")], [Built(b"a")], [b"a", b"b"]])
def test_every_candidate_has_its_build_in_order(found: Any) -> None:
    with pytest.raises(StepFailed, match="one Built for each of the 2 candidates"):
        backend_boundary.built(found, [b"a", b"b"])
    assert backend_boundary.built((Built(b"a"), Built(b"b")), [b"a", b"b"]) == [Built(b"a"), Built(b"b")]


def test_a_folder_that_cannot_be_written_is_no_fault_of_the_candidates(tmp_path: Path) -> None:
    backend_boundary.check_space(tmp_path / "none", [Built(b"a")])
    backend_boundary.check_space(tmp_path, [Built(b"a"), Built(b"b", failure=Failure.BUILD_CRASH)])
    with pytest.raises(StepFailed, match="free space"):
        backend_boundary.check_space(tmp_path / "none", [Built(b"a"), Built(b"b", failure=Failure.BUILD_CRASH)])


@pytest.mark.parametrize("code", ["A0", "0x1f", "f" * 65, "ab\n", b"ab", None])
def test_a_digest_of_code_has_at_most_64_hexadecimal_digits(code: Any) -> None:
    with pytest.raises(StepFailed, match="name of a candidate's code"):
        backend_boundary.built([Built(b"a", code=code)], [b"a"])
    told = [Built(b"a", code=""), Built(b"b", code="0123456789abcdef" * 4)]
    assert backend_boundary.built(told, [b"a", b"b"]) == told


def task(number: int, **words: Any) -> TaskInfo:
    return TaskInfo(task=number, **{"name": "op", "workload": "w", **words})


@pytest.mark.parametrize(
    ("network", "said"),
    [
        (None, "it is a NoneType, not a Network"),
        (Network((task(2),)), "numbers its tasks 2; they must count from 1"),
        (Network((task(1), task(1))), "they must count from 1"),
        (Network((task(1, weight=0),)), "cannot be used: Expected `int` >= 1"),
        (Network((task(1, flops=nan),)), "cannot be used: "),
        (Network((task(1, name=5),)), "cannot be used: Expected `str`, got `int`"),
        (Network((task(1, name=object()),)), "cannot be used: Encoding objects of type object is unsupported"),
        (Network((task(1),), batch=0), "batch 0"),
        (Network((task(1, groups={"a": 0}),)), "cannot be used: Expected `int` >= 1"),
        (Network((task(1, weight=2, groups={"a": 2, "b": 1}),)), "compete for 3 calls, but its weight"),
    ],
)
def test_an_invalid_network_is_refused_with_the_reason(network: Any, said: str) -> None:
    with pytest.raises(RequestError) as caught:
        backend_boundary.network(network)
    assert said in str(caught.value)


def evaluation(seconds: float) -> Evaluation:
    return Evaluation((Timing("tuned", (seconds,), seconds, seconds, seconds),), "x", True, 0.0, 0.0, (), "tuned")


def test_an_evaluation_has_latencies() -> None:
    assert backend_boundary.evaluation(evaluation(1.0)) == evaluation(1.0)
    for wrong in (nan, 0.0, -1.0, inf):
        with pytest.raises(StepFailed, match="the build 'tuned' has latencies of"):
            backend_boundary.evaluation(evaluation(wrong))
    with pytest.raises(StepFailed, match="it is a str, not a"):
        backend_boundary.evaluation("fast")
