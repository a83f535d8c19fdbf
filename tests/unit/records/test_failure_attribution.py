"""Failure attribution: each kind of evidence against a candidate or a device."""

from collections.abc import Iterable

import pytest

from autosched.records import failure_attribution
from autosched.records.failure_attribution import (
    MISHAPS_MAX,
    WITHIN_S,
    CandidateSuspicion,
    Case,
    DeviceSuspicion,
    Finding,
    Incident,
    Mishap,
    Suspect,
    Verdict,
)


def suspect(name: str = "x", workload: str = "conv", place: str = "mock auto on cpu") -> Suspect:
    return Suspect(place, workload, name)


def said_of(verdict: Verdict | None) -> str:
    return verdict.reason if verdict is not None else ""


class Court:
    """Attribution with short methods."""

    def __init__(self, cases: Iterable[Case] = ()) -> None:
        self.blame = CandidateSuspicion(cases)
        self.now = 100.0

    def fails(self, name: str, device: str, owner: str = "ada") -> Finding:
        self.now += 1
        return self.blame.failed(suspect(name), Incident(device, self.now, "run crash", 7, int(self.now), owner))

    def passes(self, name: str, device: str, owner: str = "ada") -> Finding:
        self.now += 1
        return self.blame.passed(suspect(name), device, self.now, owner)

    def blocked(self, owner: str) -> set[str]:
        found = self.blame.blocked("mock auto on cpu", ["conv"])
        return {case.suspect.sha256 for case in found if case.blocks(owner)}

    def all_blocked(self) -> set[str]:
        return {case.suspect.sha256 for case in self.blame.blocked("mock auto on cpu", ["conv", "conv", "other"])}


def test_the_first_failure_proves_nothing() -> None:
    court = Court()
    (case,) = court.fails("x", "a").changed
    assert not case.blocked
    assert court.all_blocked() == set()


@pytest.mark.parametrize(("second", "sound"), [("a", "a"), ("b", "b"), ("b", "a")])
def test_a_second_failure_blocks_when_one_of_the_devices_has_been_good_since(second: str, sound: str) -> None:
    court = Court()
    court.fails("x", "a")
    court.passes("other", sound)
    (case,) = court.fails("x", second).changed
    assert case.blocked
    assert [one.unit for one in case.mishaps] == ["a", second]
    assert case.reason == f"run crash on a (job 7); run crash on {second} (job 7)"
    assert court.all_blocked() == {"x"}


@pytest.mark.parametrize("second", ["a", "b"])
def test_where_nothing_works_no_candidate_is_blocked(second: str) -> None:
    court = Court()
    court.passes("before", second)
    for name in "xyz":
        court.fails(name, "a")
        court.fails(name, second)
        court.fails(name, second)
    assert court.all_blocked() == set()


@pytest.mark.parametrize("sound", ["a", "b"])
def test_a_device_that_proves_sound_later_makes_what_failed_twice_blocked(sound: str) -> None:
    court = Court()
    for device in ("a", "b"):
        court.fails("x", device)
        court.fails("y", device)
    court.fails("once", "b")
    assert court.all_blocked() == set()
    assert {case.suspect.sha256 for case in court.passes("good", sound).changed} == {"x", "y"}
    assert court.all_blocked() == {"x", "y"}
    assert court.passes("good", "a") == court.passes("good", "b") == Finding()


def test_a_good_measurement_of_another_device_decides_nothing() -> None:
    court = Court()
    court.fails("x", "a")
    court.fails("x", "b")
    court.passes("good", "c")
    assert court.all_blocked() == set()


def test_what_passes_elsewhere_speaks_against_the_device() -> None:
    court = Court()
    (case,) = court.fails("x", "a").changed
    assert court.passes("x", "b") == Finding(closed=(case,), against=(("a", case),))
    assert court.passes("x", "b") == Finding()


def test_a_failure_that_passes_on_the_same_device_is_held_against_nothing() -> None:
    court = Court()
    (case,) = court.fails("x", "a").changed
    assert court.passes("x", "a") == Finding(closed=(case,))


def test_a_third_measurement_that_passes_acquits_what_was_not_proved() -> None:
    court = Court()
    court.fails("x", "a")
    court.fails("x", "b")
    found = court.passes("x", "c")
    assert [device for device, _ in found.against] == ["a", "b"]
    assert court.passes("good", "b") == Finding(), "it is no suspect any more"


def test_what_is_blocked_stays_blocked() -> None:
    court = Court()
    court.fails("x", "a")
    court.passes("good", "b")
    court.fails("x", "b")
    assert court.fails("x", "c") == Finding()
    assert court.passes("x", "c") == Finding(), "it was under way when it was blocked"
    assert court.all_blocked() == {"x"}


def test_only_of_the_same_place_and_workload() -> None:
    court = Court()
    court.fails("x", "a")
    court.passes("good", "a")
    court.fails("x", "a")
    assert court.blame.blocked("gcc auto on cpu", ["conv"]) == []
    assert court.blame.blocked("mock auto on cpu", ["dense"]) == []


def test_an_excused_device_has_shown_nothing() -> None:
    court = Court()
    court.fails("on a", "a")
    court.fails("on both", "b")
    court.fails("on both", "a")
    court.fails("on b", "b")
    found = court.blame.excuse("a")
    assert [case.suspect.sha256 for case in found.closed] == ["on a"]
    assert [(case.suspect.sha256, [m.unit for m in case.mishaps]) for case in found.changed] == [("on both", ["b"])]
    court.passes("good", "a")
    assert court.all_blocked() == set()


def test_an_excuse_does_not_undo_a_block() -> None:
    court = Court()
    court.fails("x", "a")
    court.passes("good", "a")
    court.fails("x", "a")
    assert court.blame.excuse("a") == Finding()
    assert court.all_blocked() == {"x"}


def test_forgiven_is_forgotten() -> None:
    court = Court()
    court.fails("x", "a")
    court.passes("good", "a")
    (case,) = court.fails("x", "a").changed
    assert court.blame.forgive(case.number) == case
    assert court.blame.forgive(case.number) is None
    assert court.all_blocked() == set()
    (again,) = court.fails("x", "a").changed
    assert (again.number, len(again.mishaps)) == (case.number + 1, 1)


def test_the_next_daemon_knows_what_this_one_knew() -> None:
    court = Court()
    court.fails("broken", "a")
    court.passes("good", "a")
    court.fails("broken", "a")
    court.fails("once", "a")
    court.fails("twice", "b")
    court.fails("twice", "b")
    again = Court(court.blame.cases.values())
    assert again.all_blocked() == {"broken"}
    again.passes("good", "b")
    assert again.all_blocked() == {"broken", "twice"}
    (case,) = again.fails("new", "a").changed
    assert case.number == 4
    again.fails("once", "a")
    assert "once" not in again.all_blocked(), "the device has shown nothing in this life"


def test_the_oldest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure_attribution, "CASES_MAX", 2)
    court = Court()
    for name in "xyz":
        found = court.fails(name, "a")
    assert [case.suspect.sha256 for case in found.closed] == ["x"]
    assert [one.sha256 for one in court.blame.cases] == ["y", "z"]


# Owners ---------------------------------------------------------------------------------------------------------------


def blocked_by(owner: str) -> Court:
    """A court in which the jobs of one owner have failed with "x" twice."""
    court = Court()
    court.fails("x", "a", owner)
    court.passes("other", "a", owner)
    court.fails("x", "a", owner)
    return court


def test_the_failures_of_one_owner_block_a_candidate_for_his_own_jobs() -> None:
    court = blocked_by("eve")
    assert (court.blocked("eve"), court.blocked("ada")) == ({"x"}, set())


def test_a_failure_of_another_owner_blocks_it_for_all() -> None:
    court = blocked_by("eve")
    (case,) = court.fails("x", "a", "ada").changed
    assert case.is_shared
    assert court.blocked("ben") == {"x"}
    assert court.fails("x", "b", "ben") == Finding()
    assert court.passes("x", "b", "ben") == Finding(), "it stays blocked until an operator forgives"


def test_a_success_of_another_owner_unblocks_it_for_all() -> None:
    court = blocked_by("eve")
    (case,) = court.passes("x", "b", "ada").closed
    assert case.suspect == suspect("x")
    assert court.blocked("eve") == set()
    assert court.fails("x", "a", "eve").changed[0].mishaps[0].owner == "eve", "it begins anew"


def test_cases_from_before_owners_were_noted_count_for_all() -> None:
    assert blocked_by("").blocked("ada") == {"x"}


def test_a_verdict_names_the_owners_of_its_evidence() -> None:
    ward = DeviceSuspicion(30.0)
    found = [ward.against("a", Mishap(1.0, n, "no", owner, True)) for n, owner in enumerate(("eve", "eve", "ada"))]
    assert found[:2] == [None, None]
    assert found[2] is not None
    assert found[2].owners == {"eve", "ada"}


# Devices --------------------------------------------------------------------------------------------------------------


def test_three_different_mishaps_are_too_many() -> None:
    ward = DeviceSuspicion(30.0)
    said = [said_of(ward.against("a", Mishap(1.0, what, f"it lost {what}", "", True))) for what in (1, 1, 2, 3)]
    assert said[:3] == ["", "", ""]
    assert said[3] == "3 mishaps within 10 min, the last: it lost 3"
    assert ward.against("a", Mishap(2.0, 4, "again", "", True)) is None, "it begins anew"


def test_mishaps_are_forgotten_with_time() -> None:
    ward = DeviceSuspicion(30.0)
    times = [WITHIN_S * n for n in range(2 * MISHAPS_MAX)]
    assert not any(ward.against("a", Mishap(at, n, "late", "", True)) for n, at in enumerate(times))


@pytest.mark.parametrize("proved", [True, False])
def test_only_proof_outlasts_a_good_measurement(proved: bool) -> None:
    ward = DeviceSuspicion(30.0)
    said = ""
    for n in range(MISHAPS_MAX):
        said = said_of(ward.against("a", Mishap(1.0, n, "it broke", "", proved)))
        ward.well("a")
    assert bool(said) == proved


def test_devices_are_told_apart() -> None:
    ward = DeviceSuspicion(30.0)
    assert not any(ward.against(device, Mishap(1.0, n, "no", "", True)) for n in range(2) for device in "ab")
    assert ward.said("a", 2.0) == "2 of 3 mishaps, the last: no"
    assert ward.said("c", 2.0) == ""
    assert ward.said("a", 2.0 + WITHIN_S) == ""


def test_a_device_that_flaps_is_kept_away_for_longer_and_longer() -> None:
    ward, now, pauses = DeviceSuspicion(30.0), 0.0, []
    for _ in range(10):
        pauses.append(ward.enters("a", now))
        now += pauses[-1]
        ward.leaves("a", now)
        now += 1.0
    assert pauses == [30.0 * 2**n for n in range(7)] + [3_600.0] * 3


def test_a_good_spell_is_a_new_beginning() -> None:
    ward = DeviceSuspicion(30.0)
    assert [ward.enters("a", 0.0), ward.probed("a"), ward.probed("a")] == [30.0, 60.0, 120.0]
    ward.leaves("a", 500.0)
    assert ward.enters("a", 500.0 + WITHIN_S) == 30.0
