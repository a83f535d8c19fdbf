"""Transfer learning between tasks of one template, as in AutoTVM.

A base model is fitted to the records of all other tasks. Its prediction is the margin from which a task's own model
starts; its weight halves with every 64 records of the task (`load_history` of TVM 0.18's cost model). Scores are
normalised per task, so that fast and slow tasks have equal weight. Before its first records, a task tries the best
configurations of other tasks (`seed_configurations`).

A ranker that was trained on the records of many networks is the margin from which the base model starts, with the same
weight: without other tasks, its order alone decides what is measured first.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from autosched_backend_autotvm import seed_configurations
from autosched_backend_autotvm.config_space import Config, ConfigSpace
from autosched_backend_autotvm.cost_model import CostModel, Loss, Vector
from autosched_backend_autotvm.knob_features import Matrix
from autosched_backend_autotvm.seed_configurations import Examples
from autosched_backend_autotvm.task_features import TaskFeatures
from autosched_backend_autotvm.tuners.config_sampler import Digits
from autosched_tvm.api import Prediction, aligned_features

HALF_LIFE = 64
"""Number of own records that halve the weight of the others."""
WEIGHT_MIN = 0.05
"""Weight below which the other tasks are ignored."""
RANKER_WEIGHT = 2.0
"""Margin, with the loss `rank`, of a configuration that the ranker scores one standard deviation above the mean."""
RECORDS_MIN = 24
"""Minimum number of records of other tasks."""
RECORDS_MAX = 2_000
"""Maximum number of records of each template, which bounds the cost of fitting. The latest tasks to learn are used."""


@dataclass
class Lesson:
    """Knowledge of one task."""

    names: tuple[str, ...]
    features: Matrix
    scores: Vector
    """Scores: 1 for the best, 0 for failures."""
    examples: Examples


@dataclass
class Template:
    """Knowledge of all tasks of a template."""

    lessons: dict[str, Lesson] = field(default_factory=dict)
    """Lessons by task, in the order of their last change."""
    version: int = 0


class Knowledge:
    """Knowledge of one job, which its tasks query and extend from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._templates: defaultdict[str, Template] = defaultdict(Template)

    def tell(self, template: str, task: str, lesson: Lesson) -> None:
        """Stores all that a task knows."""
        with self._lock:
            known = self._templates[template]
            known.lessons.pop(task, None)
            known.lessons[task] = lesson
            known.version += 1

    def others(self, template: str, task: str) -> tuple[int, list[Lesson]]:
        """Returns a number that changes with each update, and the knowledge of other tasks, the latest last."""
        with self._lock:
            known = self._templates[template]
            return known.version, [lesson for other, lesson in known.lessons.items() if other != task]


class Prior:
    """Prior of one task from the others of its template."""

    def __init__(
        self, knowledge: Knowledge, task: str, space: ConfigSpace, shape: Sequence[int], loss: Loss,
        ranker: Prediction | None = None, book: Sequence[Config] = (),
    ) -> None:  # fmt: skip
        """`shape`: sizes of the task's workload, in the same order for all tasks of the template. `book`:
        configurations to begin with where no other task has any."""
        self._knowledge, self._task, self._space, self._loss = knowledge, task, space, loss
        self._ranker, self._book = ranker, book
        self._template, self._extents = space.template, tuple(shape)
        self._features = TaskFeatures(space, shape)
        self._version = -1
        self._model: CostModel | None = None
        self._wanted: tuple[str, ...] = ()

    def tell(self, digits: Digits, scores: Vector) -> None:
        """Shares this task's configurations and scores, of which the best is 1."""
        order = np.argsort(-scores, kind="stable")[: seed_configurations.OF_EACH if len(scores) >= RECORDS_MIN else 0]
        best = tuple(self._space.chosen(digits[at]) for at in order if scores[at] > 0)
        lesson = Lesson(self._features.names, self._features.of(digits), scores, Examples(self._extents, best))
        self._knowledge.tell(self._template, self._task, lesson)

    def examples(self) -> list[int]:
        """Returns the best configurations of the other tasks, else those of the starter book, adapted to this one, the
        most promising first."""
        _, lessons = self._knowledge.others(self._template, self._task)
        found = seed_configurations.of(self._extents, self._space, [lesson.examples for lesson in lessons])
        return found or seed_configurations.adapted_all(self._book, self._space)

    def opinion(self, measured: int) -> Callable[[Digits], Vector] | None:
        """Returns the margin of scores from the other tasks; None where their weight is too small beside `measured` own
        records."""
        weight = 0.5 ** (measured / HALF_LIFE)
        if weight < WEIGHT_MIN:
            return None
        features, model, wanted, ranked = self._features, self._base(), self._wanted, self._ranked()
        if model is None and ranked is None:
            return None

        def margin(digits: Digits) -> Vector:
            rows = features.of(digits)
            scores = None if ranked is None else ranked(rows, features.names)
            if model is not None:
                scores = model.predict(aligned_features(rows, features.names, wanted), scores)
            assert scores is not None
            return np.float32(weight) * scores

        return margin

    def _ranked(self) -> Prediction | None:
        """Returns the scores of the ranker as margins; None without one, and for other losses than `rank`."""
        ranker = self._ranker
        if ranker is None or self._loss != "rank":
            return None
        return lambda rows, names: np.float32(RANKER_WEIGHT) * ranker(rows, names)

    def _base(self) -> CostModel | None:
        version, lessons = self._knowledge.others(self._template, self._task)
        if version != self._version:
            self._version = version
            self._model, self._wanted = fitted(lessons, self._loss, self._ranked())
        return self._model


def fitted(
    lessons: Sequence[Lesson], loss: Loss, ranked: Prediction | None = None
) -> tuple[CostModel | None, tuple[str, ...]]:
    """Returns a model of all lessons and the names of its columns; None where there are too few records. `ranked`:
    margins from which it starts."""
    chosen: list[Lesson] = []
    for lesson in reversed(lessons):
        if lesson.scores.any() and sum(len(one.scores) for one in chosen) + len(lesson.scores) <= RECORDS_MAX:
            chosen.insert(0, lesson)
    if sum(len(one.scores) for one in chosen) < RECORDS_MIN:
        return None, ()
    wanted = tuple(dict.fromkeys(name for lesson in chosen for name in lesson.names))
    features = np.concatenate([aligned_features(lesson.features, lesson.names, wanted) for lesson in chosen])
    groups = np.repeat(np.arange(len(chosen)), [len(lesson.scores) for lesson in chosen])
    model = CostModel(loss, seed=0, threads=1)
    margin = None if ranked is None else np.concatenate([ranked(lesson.features, lesson.names) for lesson in chosen])
    model.fit(features, np.concatenate([lesson.scores for lesson in chosen]), groups=groups, margin=margin)
    return model, wanted
