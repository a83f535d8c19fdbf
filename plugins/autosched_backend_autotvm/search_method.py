"""Searches of one job: the options, and the knowledge that its tasks share."""

import difflib
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from autosched.backend import NoteGroup
from autosched.errors import RequestError
from autosched_backend_autotvm import ranked_configs, starter_book, template_matching
from autosched_backend_autotvm.config_space import ConfigSpace
from autosched_backend_autotvm.options import Options, wanted
from autosched_backend_autotvm.same_kernel_transfer import Siblings, kernel_of
from autosched_backend_autotvm.search import AutoTvmSearch
from autosched_backend_autotvm.store_features import StoreFeatures, shape_of
from autosched_backend_autotvm.template_transfer import Knowledge, Prior
from autosched_backend_autotvm.templates import user_templates
from autosched_backend_autotvm.tuners.config_sampler import ConfigSampler
from autosched_backend_autotvm.tuners.tuner_factory import tuner_of
from autosched_tvm.api import Family, Prediction, SearchContext, Unsupported, decode_ranker, targets
from autosched_tvm.tvm_types import Target


class AutoTvmMethod:
    """Searches of one job."""

    def __init__(self, options: Options) -> None:
        """Raises RequestError."""
        self._options = options
        self._restrict, self._enlarge = wanted("knobs", options.knobs), wanted("enlarge", options.enlarge)
        self._knowledge = Knowledge()
        self._rankers: dict[Family, Prediction | None] = {}
        self._reading = threading.Lock()
        """Searches begin in several threads."""

    @property
    def notes(self) -> Sequence[str | NoteGroup]:
        """Returns the templates of other packages that failed. Other problems are errors before the search begins."""
        return user_templates.failures.notes()

    def check_network(self, workloads: Iterable[Any], target: Target) -> None:
        """Raises RequestError for a knob in the options that no task of the network has."""
        asked = dict.fromkeys(self._restrict, "knobs") | dict.fromkeys(self._enlarge, "enlarge")
        if not asked:
            return
        known: set[str] = set()
        for workload in workloads:
            if (template := template_matching.find(workload, target).template) is not None:
                with suppress(RequestError):  # no value of a knob fits this task, which then has no configurations
                    known.update(knob.name for knob in template.space().knobs)
        for name, option in asked.items():
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                hint = f" Did you mean {near[0]}?" if near else ""
                there = f"There are: {', '.join(sorted(known))}" if known else "No task has a template with knobs"
                raise RequestError(
                    f"backend autotvm, option {option}: no task of the network has a knob named {name!r}.{hint} {there}"
                )

    def search(self, site: SearchContext) -> AutoTvmSearch:
        """Begins the search for a task. Raises Unsupported."""
        found = template_matching.find(site.workload, site.target)
        if (template := found.template) is None:
            raise Unsupported(found.why_not)
        try:
            whole = template.space()
        except RequestError as error:  # no value of a knob fits this task
            raise Unsupported(str(error)) from error
        space = replace(self.space(whole), kernel=kernel_of(template.nest))
        options, prior, stores = self._options, None, None
        shape, ranker = shape_of(site.workload), self._ranker(Family(template.name, whole.version), site.rankers)
        book = starter_book.configs(template.name, targets.cpu_classes(site.target)) if ranker is None else ()
        if options.transfer:
            prior = Prior(self._knowledge, site.info.workload, space, shape, options.loss_type, ranker, book)
        if options.feature_type == "store":
            stores = StoreFeatures(site, template, space)
        points = ConfigSampler(space, options.index_from, options.index_to)
        if not points.fresh(Random(0), 1, ()):
            raise Unsupported(_why_empty(points))
        tuner = tuner_of(options, points, site.seed, site.threads, prior, stores)
        siblings = Siblings(points, site.elsewhere) if options.transfer and options.tuner == "xgb" else None
        search = AutoTvmSearch(site.workload, template, space, tuner, options.early_stopping, siblings)
        if ranker is not None:
            search.rank = partial(ranked_configs.best, points, shape, ranker)
        elif book:
            search.rank = partial(ranked_configs.of_book, points, book)
        return search

    def ranked(self, site: SearchContext, count: int) -> list[bytes]:
        """Returns up to `count` candidates that a ranker expects to be the fastest, else those of the starter book.
        Raises Unsupported."""
        return self.search(site).ranked(count)

    def _ranker(self, family: Family, stored: Mapping[str, bytes]) -> Prediction | None:
        """Returns the scores of the stored ranker of a template, which is read once; None without a usable one."""
        with self._reading:
            if family not in self._rankers:
                read = decode_ranker(stored[family.name], family) if family.name in stored else None
                self._rankers[family] = read.prediction() if read is not None else None
            return self._rankers[family]

    def space(self, space: ConfigSpace) -> ConfigSpace:
        """Returns the space with the job's restrictions. Raises Unsupported when no value of a knob is left."""
        names = {knob.name for knob in space.knobs}
        try:
            return space.enlarge(_of(names, self._enlarge)).restrict(_of(names, self._restrict))
        except RequestError as error:
            raise Unsupported(str(error)) from error


def _of(names: set[str], asked: Mapping[str, list[object]]) -> dict[str, list[object]]:
    """Returns the restrictions of these knobs; others belong to other templates."""
    return {name: values for name, values in asked.items() if name in names}


def _why_empty(points: ConfigSampler) -> str:
    """Returns the reason why a space has nothing to search."""
    space = points.space
    if not points.size:
        return f"template {space.template} has {space.size} configurations, and the job wants those from {points.first}"
    reason = space.admits(space.config(points.first))
    return (
        f"none of the {points.size} configurations of template {space.template} is admitted, such as one where {reason}"
    )
