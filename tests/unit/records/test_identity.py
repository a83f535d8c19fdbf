"""Comparable measurements."""

import pytest
from msgspec.structs import replace

from autosched.model import Failure, Identity, IdentityFrom, JobSpec, Record
from autosched.records import identity

SPEC = JobSpec(name="net", model="0" * 64, backend="autotvm", target="auto")
KNOWN = Identity(
    target='{"kind": "llvm", "mcpu": "znver4"}', device="AMD EPYC 9V74", compiler="apache-tvm 0.27.0.post1, llvm 22",
    backend="autotvm 0.1.0",
)  # fmt: skip


@pytest.mark.parametrize("field", ["target", "device", "compiler", "backend"])
def test_each_circumstance_makes_measurements_incomparable(field: str) -> None:
    other = replace(KNOWN, **{field: "another"})
    assert identity.circumstances(SPEC, other) != identity.circumstances(SPEC, KNOWN)
    assert identity.digest(other) != identity.digest(KNOWN)


def test_the_word_for_a_target_does_not_matter_once_it_is_resolved() -> None:
    assert identity.circumstances(replace(SPEC, target="znver4"), KNOWN) == identity.circumstances(SPEC, KNOWN)


def test_kinds_of_devices_are_kept_apart() -> None:
    assert identity.circumstances(replace(SPEC, device="big"), KNOWN) != identity.circumstances(SPEC, KNOWN)


def test_an_unknown_identity_meets_no_known_one() -> None:
    assert identity.circumstances(SPEC, None) == identity.loose(SPEC) == "autotvm auto on cpu"
    assert identity.circumstances(SPEC, Identity()) != identity.loose(SPEC)


def test_a_key_is_told_in_a_few_words() -> None:
    assert identity.brief(identity.circumstances(SPEC, KNOWN)) == "autotvm 0.1.0 on cpu"
    assert identity.brief(identity.circumstances(SPEC, Identity())) == "cpu: "
    assert identity.brief(identity.loose(SPEC)) == identity.loose(SPEC)


def test_a_client_adds_what_its_backend_does_not_tell() -> None:
    told = Identity(target="{}", compiler="gcc 12")
    full = identity.complete(told, SPEC, device="EPYC", version="0.1.0")
    assert full == Identity("{}", "EPYC", "gcc 12", "autotvm 0.1.0")
    assert identity.complete(None, SPEC, device="EPYC", version="") == Identity("auto", "EPYC", "", "autotvm")
    assert identity.complete(KNOWN, SPEC, device="EPYC", version="9") == KNOWN


def test_the_digest_is_the_same_in_every_process() -> None:
    assert identity.digest(KNOWN) == identity.digest(replace(KNOWN))
    assert identity.digest(KNOWN) == "be9bcffc1579bac6"  # even after a field without a value was added
    assert len(identity.digest(KNOWN)) == 2 * identity.DIGEST_BYTES


def test_a_record_has_the_identity_that_was_told_before_it() -> None:
    other = replace(KNOWN, compiler="another")
    known = [IdentityFrom(4, KNOWN), IdentityFrom(9, other)]
    found = [identity.of_record(known, trial) for trial in (0, 3, 4, 8, 9, 100)]
    assert found == [None, None, KNOWN, KNOWN, other, other]
    assert identity.of_record([], 3) is None


def test_what_was_measured_on_another_model_of_device_is_measured_again() -> None:
    here, there = KNOWN, replace(KNOWN, device="another")
    known = [IdentityFrom(2, there), IdentityFrom(5, here)]
    records = [Record(task=1, number=trial, candidate=b"", latency_s=(1.0,)) for trial in range(8)]
    records[3] = replace(records[3], latency_s=(), failure=Failure.BUILD_ERROR)
    records[4] = replace(records[4], disturbed="a noise")
    found = identity.moved(records, known, here.device)
    assert [record.number for record in found if record != records[record.number]] == [2]
    assert "another model of device, another" in found[2].disturbed
    assert identity.moved(records, (), here.device) == records
    assert identity.moved(records, [IdentityFrom(0, Identity())], here.device) == records, "it was not told"
