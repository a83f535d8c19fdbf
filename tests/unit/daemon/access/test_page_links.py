"""Links that sign in."""

from autosched.daemon.access.page_links import LINK_S, LINKS_OF_ONE_MAX, PageLinks
from autosched.daemon.access.peer_identity import Principal
from autosched.protocol.roles import Role

ADA, BEN = (Principal(f"uid {uid}", Role.USER, uid=uid) for uid in (1_000, 1_001))


class Clock:
    """A clock that stands still."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_link_is_its_users_and_works_once() -> None:
    links = PageLinks(Clock())
    first, second = links.make(ADA), links.make(BEN)
    assert (links.take(second), links.take(second)) == (BEN, None)
    assert (links.take(first), links.take("")) == (ADA, None)


def test_a_link_grows_old() -> None:
    clock = Clock()
    links = PageLinks(clock)
    in_time, late = links.make(ADA), links.make(ADA)
    clock.now = LINK_S - 1
    assert links.take(in_time) == ADA
    clock.now = LINK_S
    assert links.take(late) is None


def test_a_user_has_a_bounded_number_of_links_and_keeps_the_latest() -> None:
    links = PageLinks(Clock())
    others = links.make(BEN)
    tokens = [links.make(ADA) for _ in range(LINKS_OF_ONE_MAX + 2)]
    assert len(links._links) == LINKS_OF_ONE_MAX + 1
    assert [links.take(token) for token in tokens] == [None, None] + [ADA] * LINKS_OF_ONE_MAX
    assert links.take(others) == BEN
