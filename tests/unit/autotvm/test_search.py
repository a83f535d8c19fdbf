"""Searches on real schedules of a small kernel, with templates for the purpose."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

tvm = pytest.importorskip("tvm")
pytestmark = pytest.mark.tvm

from autosched.errors import RequestError  # noqa: E402
from autosched.model import TaskInfo  # noqa: E402
from autosched_backend_autotvm import template_matching  # noqa: E402
from autosched_backend_autotvm.config_space import Config, ConfigSpace, Knob  # noqa: E402
from autosched_backend_autotvm.options import Options  # noqa: E402
from autosched_backend_autotvm.search import AutoTvmSearch, throughput  # noqa: E402
from autosched_backend_autotvm.search_method import AutoTvmMethod  # noqa: E402
from autosched_backend_autotvm.store_features import PER_STORE, StoreFeatures, shape_of  # noqa: E402
from autosched_backend_autotvm.templates.template_version import version_of  # noqa: E402
from autosched_backend_autotvm.tuners.config_sampler import ConfigSampler  # noqa: E402
from autosched_backend_autotvm.tuners.grid_and_random import GridTuner, RandomTuner  # noqa: E402
from autosched_backend_autotvm.tuners.tuner_factory import tuner_of  # noqa: E402
from autosched_tvm.compile import candidate_build  # noqa: E402
from autosched_tvm.compile.task_extraction import hash_of  # noqa: E402
from autosched_tvm.tuning.search_method import SearchContext, Unsupported  # noqa: E402

SIZE = 32


def module(name: str, *tensors: Any) -> Any:
    return tvm.IRModule({"main": tvm.te.create_prim_func(list(tensors)).with_attr("global_symbol", name)})


@pytest.fixture(scope="module")
def workload() -> Any:
    """A product of matrices."""
    left, right = (tvm.te.placeholder((SIZE, SIZE), name=name) for name in ("left", "right"))
    k = tvm.te.reduce_axis((0, SIZE), name="k")
    product = tvm.te.compute((SIZE, SIZE), lambda i, j: tvm.te.sum(left[i, k] * right[k, j], axis=k), name="product")
    return module("main", left, right, product)


@pytest.fixture(scope="module")
def target() -> Any:
    return tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 1})


class Tiles:
    """Splits rows; raises where rows are tiled by 8, and ignores the knob `idle`."""

    space = ConfigSpace(
        "tiles/1", (Knob("rows", (1, 2, 4, 8, 16)), Knob("columns", (1, 2, 4)), Knob("idle", ("a", "b")))
    )

    def __init__(self) -> None:
        self.applied: list[Config] = []

    def apply(self, schedule: Any, config: Mapping[str, Any]) -> None:
        self.applied.append(dict(config))
        if config["rows"] == 8:
            raise tvm.s_tir.ScheduleError("no eights")
        rows, columns, _ = schedule.get_loops(schedule.get_sblock("product"))
        schedule.split(rows, factors=[None, config["rows"]])
        schedule.split(columns, factors=[None, config["columns"]])


def search_of(workload: Any, seed: int = 1, early_stopping: int = 0) -> AutoTvmSearch:
    template = Tiles()
    return AutoTvmSearch(
        workload, template, template.space, RandomTuner(ConfigSampler(Tiles.space), seed), early_stopping
    )


def config_of(candidate: bytes) -> dict[str, Any]:
    config: dict[str, Any] = json.loads(candidate)[2]["config"]
    return config


def latency_s(candidate: bytes) -> list[float]:
    config = config_of(candidate)
    return [] if config["rows"] == 16 else [1e-3 * config["rows"] + 1e-4 * config["columns"]] * 3


def run(search: AutoTvmSearch, batch: int = 4) -> list[bytes]:
    """Runs a search to its end."""
    found: list[bytes] = []
    while candidates := search.select(batch):
        found += candidates
        search.update([(candidate, latency_s(candidate)) for candidate in candidates])
    return found


def test_a_candidate_is_a_trace_and_remembers_its_configuration(workload: Any) -> None:
    template = Tiles()
    search = AutoTvmSearch(workload, template, template.space, GridTuner(ConfigSampler(template.space)), 0)
    _, candidate = search.select(2)
    instructions, decisions, remembered = json.loads(candidate)
    assert instructions
    assert decisions == []
    assert remembered["template"] == "tiles/1"
    assert remembered["config"] == {"rows": 2, "columns": 1, "idle": "a"}
    replayed = candidate_build.replay(workload, candidate).mod
    assert hash_of(replayed) == remembered["hash"]


def test_each_schedule_is_measured_once_and_what_cannot_be_applied_never(workload: Any) -> None:
    found = [config_of(candidate) for candidate in run(search_of(workload))]
    seen = [(config["rows"], config["columns"]) for config in found]
    assert sorted(seen) == [(rows, columns) for rows in (1, 2, 4, 16) for columns in (1, 2, 4)]


def test_a_round_is_full_although_configurations_fail_and_none_is_applied_twice(workload: Any) -> None:
    search = search_of(workload)
    sizes = []
    for _ in range(4):
        candidates = search.select(4)
        assert search.select(4) == candidates, "asked again it says the same"
        search.update([(candidate, [1.0]) for candidate in candidates])
        sizes.append(len(candidates))
    assert sizes == [4, 4, 4, 0]
    applied = Counter(tuple(config.values()) for config in search.maker._template.applied)  # type: ignore[attr-defined]
    assert max(applied.values()) == 2, "once for each time that it was asked"


def test_a_restored_search_continues_alike(workload: Any) -> None:
    for seed in range(4):
        whole = run(search_of(workload, seed))
        restored = search_of(workload, seed)
        restored.update([(candidate, latency_s(candidate)) for candidate in whole[:8]])
        assert not restored.maker._template.applied, "records need not be applied"  # type: ignore[attr-defined]
        assert run(restored) == whole[8:]


@pytest.mark.parametrize(
    "candidate",
    [
        b"", b"no JSON", b"7", b"[[],[]]", b"[[],[],{}]", b"[[],[],[]]", b'[[],[],{"by":"ansor"}]', b"\xff",
        b'[[],[],{"template":"tiles/1","config":7,"hash":"0"}]',
        b'[[],[],{"template":"tiles/1","config":{"rows":3,"columns":1,"idle":"a"},"hash":"0"}]',
        b'[[],[],{"template":"tiles/1","config":{"rows":1},"hash":"0"}]',
        b'[[],[],{"template":"tiles/2","config":{"rows":1,"columns":1,"idle":"a"},"hash":"0"}]',
        b'[[],[],{"template":"tiles/1","version":"x","config":{"rows":1,"columns":1,"idle":"a"},"hash":"0"}]',
    ],
)  # fmt: skip
def test_candidates_of_other_spaces_are_ignored(workload: Any, candidate: bytes) -> None:
    search = search_of(workload)
    search.update([(candidate, [1e-9]), (candidate, [])])
    assert run(search) == run(search_of(workload))


def test_a_search_without_an_applicable_configuration_ends(workload: Any) -> None:
    eights = ConfigSpace("tiles/1", tuple(Knob(f"k{at}", tuple(range(100))) for at in range(6)))
    template = Tiles()
    template.apply = lambda *_: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    assert AutoTvmSearch(workload, template, eights, RandomTuner(ConfigSampler(eights), 1), 0).select(8) == []


def test_early_stopping_saves_trials(workload: Any) -> None:
    whole, stopped = run(search_of(workload, 3)), run(search_of(workload, 3, early_stopping=4))
    assert stopped == whole[: len(stopped)]
    assert len(stopped) < len(whole)
    again = search_of(workload, 3, early_stopping=4)
    again.update([(candidate, latency_s(candidate)) for candidate in stopped])
    assert again.select(4) == [], "nor does it begin again when it is restored"


def test_impossible_throughput_counts_as_a_failure() -> None:
    assert throughput([0.5, 0.25, 9.0]) == 2.0
    assert [throughput(s) for s in ([], [0.0], [-1.0], [float("nan")], [float("inf")])] == [0.0] * 5


def site_of(workload: Any, target: Any, name: str = "dense") -> SearchContext:
    return SearchContext(TaskInfo(task=1, name=name, workload="00ff"), workload, target, 7, 1)


def test_a_task_with_a_template_is_searched_with_every_tuner(workload: Any, target: Any) -> None:
    firsts = set()
    for tuner in ("xgb", "ga", "random", "grid"):
        method = AutoTvmMethod(Options(tuner=tuner, num_warmup_samples=4))  # type: ignore[arg-type]
        search = method.search(site_of(workload, target))
        first = search.select(4)
        search.update([(candidate, [1e-3 * (1 + at)]) for at, candidate in enumerate(first)])
        second = search.select(4)
        assert len({*first, *second}) == 8
        firsts.add(first[0])
        assert method.notes == []
    assert len(firsts) > 1


def test_a_task_without_a_template_is_unsupported(target: Any) -> None:
    data = tvm.te.placeholder((8,), name="data")
    doubled = module("main", data, tvm.te.compute((8,), lambda i: data[i] * 2.0, name="doubled"))
    with pytest.raises(Unsupported, match="summed up"):
        AutoTvmMethod(Options()).search(site_of(doubled, target))


def test_knobs_are_restricted_by_the_job(workload: Any, target: Any) -> None:
    usual = config_of(AutoTvmMethod(Options()).search(site_of(workload, target)).select(1)[0])
    name, value = next((name, value) for name, value in usual.items() if isinstance(value, int))
    method = AutoTvmMethod(Options(knobs=json.dumps({name: [value], "of_another_template": [3]})))
    candidates = method.search(site_of(workload, target)).select(8)
    assert {config_of(candidate)[name] for candidate in candidates} == {value}


@pytest.mark.parametrize("option", ["knobs", "enlarge"])
def test_an_unknown_knob_is_an_error_that_names_the_known_ones(option: str, workload: Any, target: Any) -> None:
    data = tvm.te.placeholder((8,), name="data")
    doubled = module("main", data, tvm.te.compute((8,), lambda i: data[i] * 2.0, name="doubled"))
    usual = config_of(AutoTvmMethod(Options()).search(site_of(workload, target)).select(1)[0])
    known = sorted(usual)[0]
    asked = json.dumps({known: [3], f"{known}x": [3]})
    method = AutoTvmMethod(Options(**{option: asked}))  # type: ignore[arg-type]
    wanted = f"option {option}: no task of the network has a knob named '{known}x'. Did you mean {known}\\? There are: "
    with pytest.raises(RequestError, match=wanted + ", ".join(sorted(usual))):
        method.check_network([doubled, workload], target)
    with pytest.raises(RequestError, match="No task has a template with knobs"):
        method.check_network([doubled], target)
    AutoTvmMethod(Options(**{option: json.dumps({known: [3]})})).check_network([doubled, workload], target)  # type: ignore[arg-type]


def test_a_job_without_restricted_knobs_loads_no_task(target: Any) -> None:
    def workloads() -> Any:
        raise AssertionError("a task was loaded")
        yield

    AutoTvmMethod(Options()).check_network(workloads(), target)


def test_candidates_of_an_older_template_replay_but_have_no_configuration(workload: Any, target: Any) -> None:
    """The template's code has changed between two jobs."""
    template = template_matching.find(workload, target).template
    assert template is not None
    space = template.space()
    assert space.version == version_of("autosched_backend_autotvm.templates.matmul")

    def search(version: str) -> AutoTvmSearch:
        changed = replace(space, version=version)
        return AutoTvmSearch(workload, template, changed, GridTuner(ConfigSampler(changed)), 0)

    old = search("old")
    first = old.select(4)
    old.update([(candidate, [1.0]) for candidate in first])
    same, other = search("old"), search("new")
    for one in (same, other):
        one.update([(candidate, [1.0]) for candidate in first])
    assert [config_of(candidate) for candidate in other.select(4)] == [config_of(candidate) for candidate in first]
    assert same.select(4) == old.select(4) != first
    for candidate in first:
        assert hash_of(candidate_build.replay(workload, candidate).mod) == json.loads(candidate)[2]["hash"]


def test_an_empty_restricted_space_is_refused_with_the_reason(workload: Any, target: Any) -> None:
    usual = config_of(AutoTvmMethod(Options()).search(site_of(workload, target)).select(1)[0])
    name = next(name for name, value in usual.items() if isinstance(value, int))
    site = site_of(workload, target)
    with pytest.raises(Unsupported, match=f"knob {name}: 1000003 leaves no legal value"):
        AutoTvmMethod(Options(knobs=json.dumps({name: [1_000_003]}))).search(site)
    with pytest.raises(Unsupported, match="wants those from"):
        AutoTvmMethod(Options(index_from=2**40)).search(site)
    nothing = points_without_any(site)
    with pytest.raises(Unsupported, match="is admitted, such as"):
        AutoTvmMethod(Options(index_from=nothing, index_to=nothing + 1)).search(site)


def test_a_template_without_a_value_for_a_knob_is_unsupported_here(
    workload: Any, target: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = template_matching.find(workload, target).template
    assert template is not None
    knobless = replace(template, knobs=(Knob("tile", ()), *template.knobs))
    monkeypatch.setattr(template_matching, "find", lambda *_: template_matching.Found(knobless))
    with pytest.raises(Unsupported, match="knob tile has no legal value for this task"):
        AutoTvmMethod(Options()).search(site_of(workload, target))


@pytest.mark.parametrize("tuner", ["xgb", "ga", "random", "grid"])
def test_spaces_of_one_and_of_a_trillion_configurations_are_searched(tuner: str, workload: Any) -> None:
    """All configurations of the large one lead to three schedules, which no tuner can know."""
    options = Options(tuner=tuner, num_warmup_samples=4)  # type: ignore[arg-type]
    single = ConfigSpace("tiles/1", (Knob("rows", (4,)), Knob("columns", (2,)), Knob("idle", ("a",))))
    idle = tuple(Knob(f"idle{at}", tuple(range(10_000))) for at in range(3))
    vast = ConfigSpace("tiles/1", (Knob("rows", (1,)), Knob("columns", (1, 2, 4)), *idle))
    assert (single.size, vast.size) == (1, 3 * 10**12)

    def search(space: ConfigSpace) -> AutoTvmSearch:
        return AutoTvmSearch(workload, Tiles(), space, tuner_of(options, ConfigSampler(space), 1, 1, None, None), 0)

    assert len(run(search(single))) == 1
    found = search(vast).select(4)
    assert 1 <= len(found) <= 3
    assert len({json.loads(candidate)[2]["hash"] for candidate in found}) == len(found)


def points_without_any(site: SearchContext) -> int:
    """Returns the number of a configuration that the template does not admit."""
    template = template_matching.find(site.workload, site.target).template
    assert template is not None
    space = template.space()
    return next(index for index in range(space.size) if space.admits(space.config(index)) is not None)


def test_features_of_stores(workload: Any, target: Any) -> None:
    template = Tiles()
    rows = StoreFeatures(site_of(workload, target), template, template.space).rows([0, 1, 3, 0])
    assert rows.shape == (4, 2 * PER_STORE)
    assert np.isfinite(rows[[0, 1]]).all()
    assert np.isnan(rows[2]).all(), "rows of 8 do not apply"
    assert (rows[0] == rows[3]).all()
    assert (rows[0] != rows[1]).any()
    assert len(template.applied) == 3


def test_the_shape_of_a_workload(workload: Any) -> None:
    assert shape_of(workload) == (SIZE,) * 6


def test_a_search_by_stores(workload: Any, target: Any) -> None:
    search = AutoTvmMethod(Options(feature_type="store", num_warmup_samples=4)).search(site_of(workload, target))
    for _ in range(2):
        candidates = search.select(4)
        assert len(candidates) == 4
        search.update([(candidate, [1e-3 * (1 + at)]) for at, candidate in enumerate(candidates)])
