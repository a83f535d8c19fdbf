"""Shares of each user in the daemon's time."""

import asyncio

import pytest

from autosched.config import LimitsConfig
from autosched.daemon.access import fair_shares
from autosched.daemon.access.fair_shares import BURST_S, FairShares
from autosched.daemon.access.peer_identity import Principal
from autosched.errors import Busy
from autosched.protocol.roles import Role

OWNER, ALICE, BOB = Principal("uid 0", Role.OPERATOR), Principal("key alice", Role.USER), Principal("b", Role.VIEWER)
LIMITS = LimitsConfig(user_changes_per_s=5.0)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def shares(clock: Clock) -> FairShares:
    return FairShares(clock, lambda: LIMITS)


def changes(shares: FairShares, who: Principal) -> int:
    """Number of changes that a user may make now."""
    for number in range(100_000):
        try:
            shares.change(who)
        except Busy:
            return number
    raise AssertionError("there is no end")


def test_a_burst_may_be_changed_at_once_and_then_so_many_a_second(shares: FairShares, clock: Clock) -> None:
    assert changes(shares, ALICE) == BURST_S * LIMITS.user_changes_per_s
    for _ in range(10):
        clock.now += 1.0
        assert changes(shares, ALICE) == 5
    clock.now += 1e6
    assert changes(shares, ALICE) == BURST_S * LIMITS.user_changes_per_s


def test_the_refusal_says_whose_and_when(shares: FairShares) -> None:
    changes(shares, ALICE)
    with pytest.raises(Busy, match=r"key alice changes more than 5 things .*limits\.user_changes_per_s") as busy:
        shares.change(ALICE)
    assert busy.value.retry_after_s == pytest.approx(0.2)


def test_users_do_not_share_and_operators_are_free(shares: FairShares) -> None:
    changes(shares, ALICE)
    assert changes(shares, BOB) == BURST_S * LIMITS.user_changes_per_s
    for _ in range(10_000):
        shares.change(OWNER)


def test_users_who_change_nothing_are_forgotten(
    shares: FairShares, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fair_shares, "USERS_MAX", 10)
    changes(shares, ALICE)
    for number in range(50):
        clock.now += 1.0
        shares.change(Principal(f"key {number}", Role.USER))
    assert len(shares._left) <= 11
    clock.now = 1.0
    shares = FairShares(clock, lambda: LimitsConfig(user_changes_per_s=0.01))
    assert changes(shares, ALICE) == 1


def test_operators_have_turns_of_their_own(shares: FairShares) -> None:
    async def work() -> None:
        until = asyncio.Event()

        async def one(who: Principal) -> None:
            async with shares.answer(who), shares.report(who):
                await until.wait()

        crowd = [asyncio.ensure_future(one(Principal(f"key {number}", Role.USER))) for number in range(40)]
        await asyncio.sleep(0)
        owner = asyncio.ensure_future(one(OWNER))
        await asyncio.sleep(0)
        until.set()
        await owner
        await asyncio.gather(*crowd)

    asyncio.run(work())
