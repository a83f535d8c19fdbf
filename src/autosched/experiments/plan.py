"""The jobs of an experiment: its combinations with their models, in the order of submission."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from msgspec import Struct

from autosched.api import Model, Settings
from autosched.experiments import models
from autosched.experiments.combinations import Values, digest, varied
from autosched.experiments.definition import Definition
from autosched.experiments.models import Found
from autosched.experiments.parameters import DAEMON, Value, settings, shapes
from autosched.model import COMBINATION, EXPERIMENT, EXPERIMENT_JOBS, Labels

AT_ONCE = 4
"""Default number of jobs at the same time: enough to fill a host and a device, and few enough for the memory of their
clients."""
Batch = tuple[tuple[str, Value], ...]


class PlannedJob(Struct, frozen=True):
    """One job of an experiment."""

    combination: str
    values: Values
    found: Found
    batch: Batch

    @property
    def daemon(self) -> dict[str, str]:
        """Parameters of the daemon that it needs."""
        return {name: str(self.values[name]) for name in DAEMON if name in self.values}

    @property
    def model(self) -> Model:
        """Its model."""
        return self.found.model(shapes(str(self.values.get("shape", ""))))


class Plan(Struct, frozen=True):
    """An experiment that is ready to run."""

    definition: Definition
    jobs: tuple[PlannedJob, ...]
    varied: tuple[str, ...]
    """Parameters in which the jobs differ."""

    def settings(self, job: PlannedJob) -> Settings:
        """The job's settings."""
        own: Labels = {
            EXPERIMENT: self.definition.name,
            EXPERIMENT_JOBS: str(len(self.jobs)),
            COMBINATION: job.combination,
        }
        return settings(job.values, {**self.definition.labels, **own}, self.definition.priority)

    def batches(self, jobs: Sequence[PlannedJob]) -> Iterator[tuple[Batch, list[PlannedJob]]]:
        """These of its jobs, by batch."""
        for key, some in groupby(jobs, key=lambda job: job.batch):
            yield key, list(some)

    def batch(self, job: PlannedJob) -> str:
        """The job's batch in words; empty without batches."""
        if not self.definition.together:
            return ""
        return ", ".join(f"{name} {value}" for name, value in job.batch if name in self.varied) or "all"

    def called(self, values: Mapping[str, Value]) -> str:
        """A job in words, by its differences from the others: "model rnet, trials 64"."""
        names = [name for name in self.varied if name in values] or ["model"]
        return ", ".join(f"{name} {values[name]}" for name in names)


def plan(definition: Definition) -> Plan:
    """Find the models of all combinations. Raises RequestError for one that cannot be read or downloaded."""
    folder = definition.file.parent
    combinations = definition.combinations()
    found = {word: models.find(word, folder) for word in dict.fromkeys(str(one["model"]) for one in combinations)}
    jobs = [
        PlannedJob(digest(one, found[str(one["model"])].sha256), one, found[str(one["model"])], definition.batch(one))
        for one in combinations
    ]
    unique = tuple(reversed({job.combination: job for job in reversed(jobs)}.values()))
    return Plan(definition, unique, tuple(varied(job.values for job in unique)))
