"""Keys of stored schedules."""

import json

import pytest
from msgspec.structs import replace

from autosched.model import Identity
from autosched.recordstore.keys import environment, join_target, measurement_id, split_target
from samples_of_store import HERE, JOB, LAB, measured

TARGET = '{"kind": "llvm", "mcpu": "znver4", "num-cores": 4}'


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (TARGET, ('{"kind":"llvm","mcpu":"znver4"}', 4)),
        ('{"mcpu": "znver4", "num-cores": 4, "kind": "llvm"}', ('{"kind":"llvm","mcpu":"znver4"}', 4)),
        ('{"kind":"llvm","mattr":["-pku","-mwaitx"],"mcpu":"znver4"}', ('{"kind":"llvm","mcpu":"znver4"}', 0)),
        ('{"kind":"llvm","mattr":["-pku","-avx512f","+fma4"],"mcpu":"znver4"}',
         ('{"kind":"llvm","mattr":["+fma4","-avx512f"],"mcpu":"znver4"}', 0)),
        ('{"kind": "llvm", "mcpu": "znver4", "tag": "my box", "model": "x", "keys": ["cpu"]}',
         ('{"kind":"llvm","mcpu":"znver4"}', 0)),
        ("auto", ("auto", 0)),
        ("", ("", 0)),
        ("[1]", ("[1]", 0)),
        ("{" * 2_000, ("{" * 2_000, 0)),
    ],
)  # fmt: skip
def test_target_is_split_into_what_decides_the_code(target: str, expected: tuple[str, int]) -> None:
    assert split_target(target) == expected


def test_name_of_the_device_is_in_no_key() -> None:
    other = replace(HERE, device="another")
    assert (other.strict, other.loose) == (HERE.strict, HERE.loose)


@pytest.mark.parametrize("field", ["target", "compiler", "measurement", "backend", "template"])
def test_each_circumstance_is_in_the_strict_key(field: str) -> None:
    assert replace(HERE, **{field: "another"}).strict != HERE.strict


def test_threads_are_in_both_keys() -> None:
    one, four = (environment(Identity(TARGET.replace("4}", f"{n}}}")), "autotvm") for n in (1, 4))
    assert one.strict != four.strict
    assert one.loose != four.loose


def test_backend_of_the_job_stands_in_for_an_identity_that_names_none() -> None:
    assert environment(None, "mock").backend == "mock"
    assert environment(Identity(backend="mock 2"), "mock").backend == "mock 2"


def test_measurement_is_named_by_what_was_measured_and_not_by_what_is_found_later() -> None:
    record = measured(0, 1e-3).record
    name = measurement_id(LAB.name, JOB.number, "w", record)
    assert measurement_id(LAB.name, JOB.number, "w", replace(record, disturbed="load", measured_at=9.0)) == name
    others = [
        measurement_id("elsewhere", JOB.number, "w", record),
        measurement_id(LAB.name, 99, "w", record),
        measurement_id(LAB.name, JOB.number, "v", record),
        *(measurement_id(LAB.name, JOB.number, "w", replace(record, **changed)) for changed in (
            {"number": 1}, {"candidate": b"x"}, {"latency_s": (1.0,)})),
    ]  # fmt: skip
    assert len({name, *others}) == 1 + len(others)


@pytest.mark.parametrize("threads", [0, 1, 64])
def test_a_target_is_joined_as_it_was_split(threads: int) -> None:
    told = {"kind": "llvm", "mcpu": "znver4", **({"num-cores": threads} if threads else {})}
    target, count = split_target(json.dumps(told))
    assert count == threads
    assert json.loads(join_target(target, count)) == told
