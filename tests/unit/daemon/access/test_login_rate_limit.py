"""A host with repeated wrong keys is refused for a while."""

from autosched.daemon.access.login_rate_limit import FAILURES_MAX, HOSTS_MAX, WITHIN_S, LoginRateLimit


def test_a_host_is_banned_for_a_while() -> None:
    failures = LoginRateLimit()
    for number in range(FAILURES_MAX):
        assert not failures.banned("10.0.0.1", number)
        failures.note("10.0.0.1", number)
    assert failures.banned("10.0.0.1", FAILURES_MAX)
    assert not failures.banned("10.0.0.2", FAILURES_MAX)
    assert not failures.banned("10.0.0.1", WITHIN_S)  # the first of them is forgotten


def test_occasional_failures_cause_no_ban() -> None:
    failures = LoginRateLimit()
    for number in range(10 * FAILURES_MAX):
        failures.note("10.0.0.1", number * WITHIN_S / 2)
        assert not failures.banned("10.0.0.1", number * WITHIN_S / 2)


def test_memory_does_not_grow_with_attackers() -> None:
    failures = LoginRateLimit()
    for number in range(HOSTS_MAX + 100):
        failures.note(str(number), 0.0)
    assert len(failures._of) == HOSTS_MAX
    assert not failures.banned("none", 0.0)
    assert len(failures._of) == HOSTS_MAX
