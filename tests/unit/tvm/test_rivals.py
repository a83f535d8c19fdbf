from autosched.tvm.rivals import TRIALS_MIN, Rivals


def tried(rivals: Rivals, task: int, latency_s: float | None, times: int = 1) -> None:
    for _ in range(times):
        rivals.measured(task, latency_s)


def test_a_task_that_is_far_behind_is_given_up_once_it_had_its_chance() -> None:
    rivals = Rivals([(1, 2)])
    tried(rivals, 1, 1.0, TRIALS_MIN)
    tried(rivals, 2, 3.0, TRIALS_MIN - 1)
    assert not rivals.lost(2)
    tried(rivals, 2, 3.5)
    assert rivals.lost(2) and not rivals.lost(1)


def test_the_longer_it_is_tried_the_less_it_may_be_behind() -> None:
    rivals = Rivals([(1, 2)])
    tried(rivals, 1, 1.0, 50)
    tried(rivals, 2, 1.2, TRIALS_MIN)
    assert not rivals.lost(2)
    tried(rivals, 2, None, 50)
    assert rivals.lost(2)


def test_a_task_that_one_convolution_still_needs_goes_on() -> None:
    rivals = Rivals([(1, 2), (3, 2)])
    tried(rivals, 1, 1.0, 20)
    tried(rivals, 2, 9.0, 20)
    assert not rivals.lost(2)
    tried(rivals, 3, 1.0)
    assert rivals.lost(2)


def test_tasks_without_rivals_or_without_a_latency_go_on() -> None:
    rivals = Rivals([(1, 2)])
    tried(rivals, 5, 9.0, 50)
    tried(rivals, 1, None, 50)
    tried(rivals, 2, 1.0)
    assert not rivals.lost(5) and not rivals.lost(1)
