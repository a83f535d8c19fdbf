"""Search of one task: a tuner over the numbers of a template's configurations, and schedules made from them."""

import json
import math
from collections.abc import Callable, Sequence
from itertools import islice
from statistics import median
from typing import Protocol

import tvm

from autosched_backend_autotvm.config_space import Config, ConfigSpace
from autosched_backend_autotvm.same_kernel_transfer import Siblings
from autosched_backend_autotvm.tuners import Tuner
from autosched_tvm.api import EarlyStopping, hash_of
from autosched_tvm.tvm_types import IRModule, Schedule

TRIED_PER_WANTED = 16
"""Maximum number of configurations tried per requested candidate before the space counts as exhausted."""
ADOPTED_SHARE = 0.25
"""Maximum share of a round that comes from siblings; at least one candidate."""


class Template(Protocol):
    """Template as a search uses it."""

    def apply(self, schedule: Schedule, config: Config) -> None:
        """Applies a configuration to the schedule. Raises TVM's exceptions."""


Made = tuple[bytes, str]
"""A candidate, and the hash of the workload that it schedules."""


class Making(Protocol):
    """Applies configurations."""

    def make(self, config: Config) -> Made | None:
        """Returns the candidate; None if the configuration cannot be applied."""


class Maker:
    """Applies configurations to a workload."""

    def __init__(self, workload: IRModule, template: Template, space: ConfigSpace) -> None:
        self._workload, self._template, self._space = workload, template, space

    def make(self, config: Config) -> Made | None:
        """Returns the candidate; None if the configuration cannot be applied."""
        schedule = tvm.s_tir.Schedule(self._workload, debug_mask=0, enable_check=False)
        try:
            self._template.apply(schedule, config)
        except Exception:  # TVM's: the configuration is illegal, and the template cannot know it
            return None
        found = hash_of(schedule.mod)
        remembered = {**self._space.identity, "config": config, "hash": found}
        trace = [*schedule.trace.as_json(), remembered]
        return json.dumps(trace, default=lambda number: number.value, separators=(",", ":")).encode(), found


class AutoTvmSearch:
    """A fold over the measurements of this task and, for transfer, of others.

    A candidate contains its template with version, its kernel, its configuration and the hash of the scheduled
    workload, so that resuming from records applies no schedule again.
    """

    def __init__(
        self, workload: IRModule, template: Template, space: ConfigSpace, tuner: Tuner, early_stopping: int,
        siblings: Siblings | None = None,
    ) -> None:  # fmt: skip
        self.rank: Callable[[int], Sequence[int]] = lambda count: ()
        """Returns up to a number of configurations that are expected to be the fastest before anything is measured."""
        self._space, self._tuner, self._siblings = space, tuner, siblings
        self.maker: Making = Maker(workload, template, space)
        self._plateau = EarlyStopping(early_stopping)
        self._measured: set[int] = set()
        self._spoilt: set[int] = set()
        """Configurations that cannot be applied, or that give the same schedule as another."""
        self._owners: dict[str, int] = {}
        """Configuration by hash of the scheduled workload."""

    def select(self, count: int) -> list[bytes]:
        """Returns up to `count` candidates that were not measured before; none where the space is exhausted."""
        chosen: list[bytes] = []
        if self._plateau.over:
            return chosen
        adopted = self._adopted(count)
        own = count - len(adopted)
        taken: set[int] = set()
        for _ in range(TRIED_PER_WANTED):
            if len(chosen) >= own:
                break
            # Whatever siblings know, the tuner proposes the same and stands first: so a round that was cut off is
            # finished as it was begun, although they have gone on meanwhile.
            proposed = self._tuner.propose(count - len(chosen), taken)
            taken.update(proposed)
            made = (self._new(index) for index in proposed if index not in adopted)
            chosen += islice((candidate for candidate in made if candidate is not None), own - len(chosen))
            if not proposed:
                break
        return [*chosen, *adopted.values()]

    def ranked(self, count: int) -> list[bytes]:
        """Returns up to `count` candidates that are expected to be the fastest before anything is measured."""
        made = map(self._new, self.rank(TRIED_PER_WANTED * count))
        return list(islice((candidate for candidate in made if candidate is not None), count))

    def _adopted(self, count: int) -> dict[int, bytes]:
        """Returns the configurations that a round of `count` takes from siblings."""
        indices = self._siblings.best(self._measured) if self._siblings is not None else []
        made = ((index, self._new(index)) for index in indices)
        new = ((index, candidate) for index, candidate in made if candidate is not None)
        return dict(islice(new, max(1, int(ADOPTED_SHARE * count))))

    def update(self, measured: Sequence[tuple[bytes, Sequence[float]]]) -> None:
        """Learns from candidates of this template. Those of other templates or versions do not apply here."""
        own = [(index, candidate, s) for candidate, s in measured if (index := self._read(candidate)) is not None]
        self._plateau.update([(candidate, latency_s) for _, candidate, latency_s in own])
        self._measured.update(index for index, _, _ in own)
        self._tuner.learn([index for index, _, _ in own], [throughput(latency_s) for _, _, latency_s in own])

    def _new(self, index: int) -> bytes | None:
        """Returns the candidate of a configuration; None if it cannot be applied, or gives the same schedule as
        another."""
        if index in self._spoilt:
            return None
        made = self.maker.make(self._space.config(index))
        if made is None or self._owners.setdefault(made[1], index) != index:
            self._spoilt.add(index)
            return None
        return made[0]

    def _read(self, candidate: bytes) -> int | None:
        """Returns the configuration of a candidate; None if it is none of this space."""
        if (found := configuration(self._space, candidate)) is None:
            return None
        index, scheduled_hash = found
        self._owners.setdefault(scheduled_hash, index)
        return index


def configuration(space: ConfigSpace, candidate: bytes) -> tuple[int, str] | None:
    """Returns the number of a candidate's configuration and the hash of the scheduled workload; None for a candidate of
    another template or version, and for a configuration that is not in the space."""
    try:
        *trace, remembered = json.loads(candidate)
        of = remembered["template"], remembered.get("version", "")
        if len(trace) != 2 or of != (space.template, space.version):
            return None
        index = space.find(remembered["config"])
        return None if index is None else (index, str(remembered["hash"]))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def throughput(latency_s: Sequence[float]) -> float:
    """Returns calls per second; 0 for a failure, and for a latency that is no positive number."""
    latency = median(latency_s) if latency_s else math.inf
    return 1.0 / latency if 0.0 < latency < math.inf else 0.0
