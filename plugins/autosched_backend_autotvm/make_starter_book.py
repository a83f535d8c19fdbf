"""``python -m autosched_backend_autotvm.make_starter_book --store FILE``: writes starter books from a record store.

The store has random schedules of many networks (`autosched experiment run experiments/zoo.toml`). For each template, a
model of them predicts how fast each task's best configurations are for all other tasks. Those are chosen that together
come nearest to the best of each task, one after the other: as in CLBlast (Nugteren, IWOCL 2018, section 5), a
configuration counts relative to each shape's own best, so that large shapes do not decide alone. Since a search
measures the schedule by rule first, a configuration adds only what it is faster.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import xgboost

from autosched.errors import AutoschedError
from autosched.recordstore import opening
from autosched.recordstore.queries import Lookup
from autosched_backend_autotvm import starter_book, template_matching
from autosched_backend_autotvm.config_space import Config, ConfigSpace
from autosched_backend_autotvm.knob_features import Matrix
from autosched_backend_autotvm.seed_configurations import adapted
from autosched_backend_autotvm.starter_book import Book, Chapter
from autosched_backend_autotvm.store_features import shape_of
from autosched_backend_autotvm.stored_tasks import configurations
from autosched_backend_autotvm.task_features import TaskFeatures
from autosched_backend_autotvm.tuners.config_sampler import ConfigSampler
from autosched_tvm.api import StoredWorkload, aligned_features, stored_workloads, targets

CONFIGS_MAX = 10
"""Maximum number of configurations of a template."""
GAIN_MIN = 0.0002
"""Increase of the mean speed below which no further configuration is added."""
BEST_OF_EACH = 4
"""Number of a task's fastest configurations that may be chosen. The fastest one is partly luck."""
MEASURED_MIN, TASKS_MIN = 8, 4
"""Minimum numbers of measured configurations of a task, and of tasks of a template."""
TREES = {
    "objective": "reg:squarederror", "max_depth": 6, "eta": 0.1, "subsample": 0.8, "colsample_bytree": 0.8,
    "nthread": 1, "verbosity": 0, "seed": 0,
}  # fmt: skip
ROUNDS = 300


class BookKey(NamedTuple):
    """A chapter of a book."""

    book: str
    """Name of the class of CPUs."""
    template: str


@dataclass(frozen=True)
class Measured:
    """Measured configurations of one task."""

    space: ConfigSpace
    features: TaskFeatures
    latencies_s: Mapping[int, float | None]
    """Seconds of each configuration, None for a failure."""
    rule_s: float | None = None
    """Seconds of the schedule by rule; None if it was not measured."""

    @property
    def rule_speed(self) -> float:
        """Speed of the schedule by rule relative to the fastest configuration, at most 1; 0 if it is unknown."""
        fastest_s = self.latencies_s[self.fastest[0]]
        return min(1.0, fastest_s / self.rule_s) if fastest_s and self.rule_s else 0.0

    @property
    def fastest(self) -> list[int]:
        """Configurations that did not fail, the fastest first."""
        found = {index: s for index, s in self.latencies_s.items() if s}
        return sorted(found, key=lambda index: (found[index], index))

    def rows(self, indices: Sequence[int], names: Sequence[str]) -> Matrix:
        """Returns the named features of configurations."""
        digits = ConfigSampler(self.space).digits(list(indices))
        return aligned_features(self.features.of(digits), self.features.names, names)


def main(argv: Sequence[str] | None = None) -> int:
    """Writes one file for each class of CPUs in the store; returns 0 if it wrote any."""
    parser = argparse.ArgumentParser(
        prog="python -m autosched_backend_autotvm.make_starter_book", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--store", required=True, metavar="FILE|URL", help="record store")
    parser.add_argument("--into", type=Path, default=starter_book.FOLDER, metavar="DIR")
    args = parser.parse_args(argv)
    try:
        with Lookup(opening.existing(opening.url_or_file(args.store))) as lookup:
            written = write(list(stored_workloads(lookup)), args.into)
    except AutoschedError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write("".join(f"{file}\n" for file in written) or "the store has too few measured templates\n")
    return 0 if written else 1


def write(workloads: Sequence[StoredWorkload], folder: Path) -> list[Path]:
    """Writes the books of these workloads; returns their files."""
    tasks, networks = defaultdict[BookKey, list[Measured]](list), defaultdict[str, set[str]](set)
    for one in workloads:
        if (found := measured(one)) is not None:
            tasks[found[0]].append(found[1])
            networks[found[0].book].update(one.networks)
    books = defaultdict[str, Book](dict)
    for key, own in tasks.items():
        if len(own) >= TASKS_MIN and (made := chapter(own)).configs:
            books[key.book][key.template] = made
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, book in sorted(books.items()):
        count = sum(len(one.latencies_s) for key, own in tasks.items() if key.book == name for one in own)
        source = f"{count:,} measured schedules of {len(networks[name])} networks"
        written.append(folder / f"{name}.toml")
        written[-1].write_text(starter_book.text_of(name, book, source))
    return written


def measured(one: StoredWorkload) -> tuple[BookKey, Measured] | None:
    """Returns a workload's chapter and its configurations; None without a template, and with too few of them."""
    template, classes = template_matching.find(one.module, one.target).template, targets.cpu_classes(one.target)
    if template is None or not classes:
        return None
    space = template.space()
    found = configurations(space, one.latencies_s)
    task = Measured(space, TaskFeatures(space, shape_of(one.module)), found, one.rule_s)
    return (BookKey(classes[0], template.name), task) if len(task.fastest) >= MEASURED_MIN else None


def chapter(tasks: Sequence[Measured]) -> Chapter:
    """Chooses the configurations of a template."""
    pool = [task.space.config(index) for task in tasks for index in task.fastest[:BEST_OF_EACH]]
    pool = [config for at, config in enumerate(pool) if config not in pool[:at]]
    chosen, means = covering(predicted_speeds(tasks, pool), [task.rule_speed for task in tasks])
    return Chapter(len(tasks), tuple(means), tuple(pool[at] for at in chosen))


def predicted_speeds(tasks: Sequence[Measured], pool: Sequence[Config]) -> Matrix:
    """Returns the speed of each configuration for each task, relative to the task's fastest one: one row for each task.
    A configuration that a task does not admit has speed 0."""
    names = tuple(dict.fromkeys(name for task in tasks for name in task.features.names))
    rows = np.concatenate([task.rows(list(task.latencies_s), names) for task in tasks])
    known = [task.latencies_s[task.fastest[0]] for task in tasks]
    target = [
        best / s if s and best else 0.0
        for task, best in zip(tasks, known, strict=True) for s in task.latencies_s.values()
    ]  # fmt: skip
    model = xgboost.train(TREES, xgboost.DMatrix(rows, np.array(target, np.float32)), ROUNDS)
    speeds = np.zeros((len(tasks), len(pool)), np.float32)
    for own, task in zip(speeds, tasks, strict=True):
        points = ConfigSampler(task.space)
        nearest = ((at, adapted(config, task.space)) for at, config in enumerate(pool))
        fitting = {at: index for at, index in nearest if index is not None and points.legal(index)}
        if fitting:
            predicted = model.inplace_predict(task.rows(list(fitting.values()), names))
            own[list(fitting)] = np.maximum(predicted, 0.0)
            own /= max(float(own.max()), 1e-6)
    return speeds


def covering(speeds: Matrix, known: Sequence[float]) -> tuple[list[int], list[float]]:
    """Returns columns, each of which adds most to the mean over all rows of the best of a row, and that mean after
    each. `known`: what each row has without any column."""
    chosen: list[int] = []
    means: list[float] = []
    best = np.array(known, np.float32)
    while len(chosen) < CONFIGS_MAX:
        with_each = np.maximum(best[:, None], speeds).mean(axis=0)
        at = int(np.argmax(with_each))
        if with_each[at] - best.mean() < GAIN_MIN:
            break
        chosen.append(at)
        best = np.maximum(best, speeds[:, at])
        means.append(round(float(best.mean()), 3))
    return chosen, means


if __name__ == "__main__":
    sys.exit(main())
