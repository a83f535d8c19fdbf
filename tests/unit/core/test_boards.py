"""Boards that register themselves: they come, go, and keep their identity."""

from autosched.core.events import BoardForgotten, BoardGone, BoardJoined, ResourcesDeclared, UnitDrained, UnitReturned
from autosched.core.explain import explain_job
from autosched.core.state import BOARDS_KEPT_S
from autosched.model import Outcome, Pool, RpcServer, Unit
from unit.core.scheduler_driver import HOST, ONE_EACH, Story, idle, steps, wants

POOL = "device:pi4"
BOARD = (POOL,)


def unit(name: str = "pi4-a", address: str = "a.lab:9090") -> Unit:
    return Unit(name, accelerator=RpcServer(address, "pi4"))


def joined(name: str = "pi4-a", address: str = "a.lab:9090") -> BoardJoined:
    return BoardJoined(unit(name, address), POOL)


def restarted(pools: tuple[Pool, ...] = ONE_EACH, kept: tuple[int, ...] = ()) -> ResourcesDeclared:
    return ResourcesDeclared(pools, 600.0, 60.0, kept=kept)


def test_a_board_gets_steps_while_it_is_connected() -> None:
    story = Story()
    story.tell(joined())
    job = story.running(wants(1, BOARD, "profile"), wants(2, BOARD, "profile"))
    assert story.starts() == [(job, 1)]
    story.tell(BoardGone("pi4-a", "its server has hung up"))
    assert not steps(story.end(1, idle(1), outcome=Outcome.FAILED))
    said = "\n".join(explain_job(story.state, job))
    assert "its board is gone" in said
    assert "pi4-a is gone, and gets no steps until it is back: its server has hung up" in said
    assert [step.task for step in steps(story.tell(joined()))] == [2], "it is the same device"
    assert list(story.state.slots) == ["host/0", "cpu0", "pi4-a"]


def test_a_second_board_of_the_kind_takes_waiting_steps() -> None:
    story = Story((*ONE_EACH, Pool(POOL, (unit("listed", "b.lab:9090"),))))
    job = story.running(wants(1, BOARD, "profile"), wants(2, BOARD, "profile"), wants(3, BOARD, "profile"))
    assert story.starts() == [(job, 1)]
    story.tell(joined())
    story.tell(joined("pi4-b", "c.lab:9090"))
    assert story.holders() == {"host/0": None, "cpu0": None, "listed": 1, "pi4-a": 2, "pi4-b": 3}
    assert story.state.totals.units[POOL] == 3


def test_a_board_that_returns_with_another_address_is_the_same_unit() -> None:
    story = Story()
    story.tell(joined())
    story.tell(BoardGone("pi4-a", "its server has hung up"))
    story.tell(joined("pi4-a", "a.lab:9091"))
    assert story.state.slots["pi4-a"].unit.accelerator == RpcServer("a.lab:9091", "pi4")
    assert story.state.queues[POOL].pool.units == (unit("pi4-a", "a.lab:9091"),)


def test_a_drained_board_stays_drained_when_it_returns() -> None:
    story = Story()
    story.tell(joined())
    story.tell(UnitDrained("pi4-a", "moves to another rack", "ada"))
    story.tell(BoardGone("pi4-a", "its server has hung up"))
    story.tell(joined())
    story.running(wants(1, BOARD, "profile"))
    assert not story.starts()
    assert steps(story.tell(UnitReturned("pi4-a", "ada")))


def test_a_restarted_daemon_waits_for_its_boards() -> None:
    story = Story()
    story.tell(joined())
    job = story.running(wants(1, BOARD, "profile"))
    story.tell(restarted())
    assert story.holders()["pi4-a"] is None
    assert not steps(story.attach(job, wants(1, BOARD, "profile")))
    assert "pi4-a is gone, and gets no steps until it is back: the daemon was started again" in "\n".join(
        explain_job(story.state, job)
    )
    assert steps(story.tell(joined()))


def test_a_step_on_a_board_survives_a_restart_with_its_client() -> None:
    story = Story()
    story.tell(joined())
    job = story.running(wants(1, BOARD, "profile"))
    story.tell(restarted(kept=(job,)))
    assert story.holders()["pi4-a"] == 1
    story.tell(joined())
    assert story.holders()["pi4-a"] == 1
    story.end(1, wants(2, HOST))
    assert story.holders()["pi4-a"] is None


def test_a_board_that_was_away_for_long_is_removed_at_a_start() -> None:
    story = Story()
    for name in ("pi4-a", "pi4-b"):
        story.tell(joined(name, f"{name}:9090"))
    story.tell(BoardGone("pi4-a", "its server has hung up"))
    story.tell(restarted(), at=BOARDS_KEPT_S + 1)
    assert list(story.state.boards) == ["pi4-b"]
    assert list(story.state.slots) == ["host/0", "cpu0", "pi4-b"]


def test_a_forgotten_board_leaves_the_others_as_they_are() -> None:
    story = Story()
    for name in ("pi4-a", "pi4-b", "pi4-c"):
        story.tell(joined(name, f"{name}:9090"))
    job = story.running(wants(1, BOARD, "profile"), wants(2, BOARD, "profile"))
    held = {name for name, step in story.holders().items() if step is not None}
    (idle_one,) = {"pi4-a", "pi4-b", "pi4-c"} - held
    story.tell(BoardGone(idle_one, "its server has hung up"))
    story.tell(BoardForgotten(idle_one))
    assert set(story.state.boards) == held
    assert story.state.totals.units[POOL] == 2
    story.end(1, wants(3, BOARD, "profile"))
    assert sum(step is not None for step in story.holders().values()) == 2
    assert job in story.state.active


def test_the_last_board_of_a_kind_is_forgotten_with_the_kind() -> None:
    story = Story()
    story.tell(joined())
    story.tell(BoardGone("pi4-a", "its server has hung up"))
    story.tell(BoardForgotten("pi4-a"))
    assert (POOL in story.state.queues, "pi4-a" in story.state.slots) == (False, False)
    story.tell(joined())
    story.running(wants(1, BOARD, "profile"))
    assert len(story.starts()) == 1


def test_a_registered_board_that_is_now_in_the_settings_is_that_of_the_settings() -> None:
    story = Story()
    story.tell(joined())
    story.tell(restarted((*ONE_EACH, Pool(POOL, (unit(),)))))
    assert not story.state.boards
    story.running(wants(1, BOARD, "profile"))
    assert len(story.starts()) == 1
