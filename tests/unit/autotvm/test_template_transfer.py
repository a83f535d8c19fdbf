import math
import threading
from dataclasses import replace

import numpy as np
import pytest

from autosched_backend_autotvm.seed_configurations import OF_EACH, Examples
from autosched_backend_autotvm.template_transfer import RECORDS_MAX, Knowledge, Lesson, Prior, fitted
from autosched_backend_autotvm.tuners import Tuner
from autosched_backend_autotvm.tuners.annealing import Plan
from autosched_backend_autotvm.tuners.config_sampler import ConfigSampler
from autosched_backend_autotvm.tuners.genetic import Breeding, GeneticTuner
from autosched_backend_autotvm.tuners.grid_and_random import RandomTuner
from autosched_backend_autotvm.tuners.model_based import Learning, ModelBasedTuner
from deadlines import DEADLINE_S
from made_up_kernel import MadeUpKernel

NONE = Examples((), ())
SHORT = Learning(chains=32, plan=Plan(iterations=60))


def tuner_of(kernel: MadeUpKernel, knowledge: Knowledge | None, task: str, seed: int) -> ModelBasedTuner:
    points = ConfigSampler(kernel.space)
    shape = (kernel.image, kernel.inputs, kernel.outputs, kernel.taps)
    prior = Prior(knowledge, task, kernel.space, shape, "rank") if knowledge is not None else None
    return ModelBasedTuner(points, seed, SHORT, prior)


def run(tuner: Tuner, kernel: MadeUpKernel, rounds: int) -> list[float]:
    scores: list[float] = []
    for _ in range(rounds):
        indices = tuner.propose(8, ())
        found = [kernel.throughput(index) for index in indices]
        tuner.learn(indices, found)
        scores += found
    return scores


def test_a_sibling_needs_16_trials_for_a_result_that_takes_32_alone() -> None:
    gains = []
    for seed in range(3):
        knowledge = Knowledge()
        for task, shape in enumerate(((56, 64, 64, 3), (28, 128, 128, 3))):
            kernel = MadeUpKernel(seed, *shape)
            bred = GeneticTuner(ConfigSampler(kernel.space), seed, Breeding(population=16))
            run(bred, kernel, 8)
            tuner_of(kernel, knowledge, str(task), seed).learn(list(bred.scores), list(bred.scores.values()))
        sibling = MadeUpKernel(seed, 14, 256, 256, 3)
        helped = max(run(tuner_of(sibling, knowledge, "new", seed), sibling, 2))
        alone = max(run(tuner_of(sibling, None, "new", seed), sibling, 4))
        gains.append(math.log(helped / alone))
    assert np.mean(gains) > 0.0


def taught(records: int = 100) -> tuple[Knowledge, MadeUpKernel]:
    knowledge, kernel = Knowledge(), MadeUpKernel(1)
    tuner = tuner_of(kernel, knowledge, "first", 1)
    indices = RandomTuner(ConfigSampler(kernel.space), 1).propose(records, ())
    tuner.learn(indices, [kernel.throughput(index) for index in indices])
    return knowledge, kernel


def test_records_of_other_tasks_count_half_after_64_own_records_and_fade_out() -> None:
    knowledge, kernel = taught()
    prior = Prior(knowledge, "second", kernel.space, (56, 64, 64, 3), "reg")
    digits = ConfigSampler(kernel.space).digits([5, 500, 5000])
    at_first, later = prior.opinion(0), prior.opinion(64)
    assert at_first is not None
    assert later is not None
    assert later(digits) == pytest.approx(0.5 * at_first(digits))
    assert prior.opinion(276) is not None
    assert prior.opinion(277) is None


def test_a_task_learns_only_from_other_tasks_of_its_template_with_enough_records() -> None:
    knowledge, kernel = taught()
    space, other = kernel.space, replace(kernel.space, template="another")
    assert Prior(knowledge, "first", space, (1,), "reg").opinion(0) is None
    assert Prior(knowledge, "second", other, (1,), "reg").opinion(0) is None
    assert Prior(taught(16)[0], "second", space, (1,), "reg").opinion(0) is None


def test_failures_alone_are_not_transferred() -> None:
    features = np.zeros((200, 1), np.float32)
    assert fitted([Lesson(("a",), features, np.zeros(200, np.float32), NONE)], "reg") == (None, ())


def test_records_beyond_the_limit_are_those_of_the_longest_idle_tasks() -> None:
    def lesson(name: str, records: int) -> Lesson:
        return Lesson((name,), np.ones((records, 1), np.float32), np.ones(records, np.float32), NONE)

    _, names = fitted([lesson("old", RECORDS_MAX), lesson("new", 100)], "reg")
    assert names == ("new",)


def test_tasks_read_and_add_records_concurrently() -> None:
    knowledge, kernel = taught()
    failed: list[BaseException] = []

    def work(task: str) -> None:
        try:
            run(tuner_of(kernel, knowledge, task, 1), kernel, 3)
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=work, args=(str(number),)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert not failed
    version, lessons = knowledge.others("made_up", "no task")
    assert version == 1 + 3 * 3
    assert sorted(len(lesson.scores) for lesson in lessons) == [24, 24, 24, 100]


def test_only_the_first_round_begins_with_the_best_of_other_tasks() -> None:
    knowledge, kernel = taught(24)
    best = tuner_of(kernel, None, "first", 1)
    indices = RandomTuner(ConfigSampler(kernel.space), 1).propose(24, ())
    best.learn(indices, [kernel.throughput(index) for index in indices])
    new = tuner_of(kernel, knowledge, "second", 2)
    first = new.propose(8, ())
    assert first[:OF_EACH] == best.ranked(OF_EACH)
    assert new.propose(8, ()) == first, "asked again, the same"
    assert not set(first) & set(new.propose(8, first)), "one that could not be applied is followed by others"
    new.learn(first[4:], [kernel.throughput(index) for index in first[4:]])
    assert not set(best.ranked(OF_EACH)) & set(new.propose(8, ())[:1])


def test_the_starter_book_gives_the_examples_that_no_other_task_has() -> None:
    knowledge, kernel = taught()
    book = [kernel.space.config(3), kernel.space.config(5), kernel.space.config(3)]

    def examples(known: Knowledge) -> list[int]:
        return Prior(known, "new", kernel.space, (14, 256, 256, 3), "rank", book=book).examples()

    assert examples(Knowledge()) == [3, 5]
    assert examples(knowledge) not in ([], [3, 5])
