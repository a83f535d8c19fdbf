"""Rankers are trained on the records of a store, and again when there are a fifth more."""

import json
import math
import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

pytest.importorskip("tvm")
pytestmark = pytest.mark.tvm

import msgspec  # noqa: E402
import tvm  # noqa: E402

from autosched.model import Program, TaskInfo  # noqa: E402
from autosched.recordstore.queries import Lookup  # noqa: E402
from autosched.recordstore.rows import Measurement, SourceJob, Workload  # noqa: E402
from autosched.recordstore.store import RecordStore  # noqa: E402
from autosched_backend_autotvm import template_matching  # noqa: E402
from autosched_backend_autotvm.options import Options  # noqa: E402
from autosched_backend_autotvm.search import Maker  # noqa: E402
from autosched_backend_autotvm.search_method import AutoTvmMethod  # noqa: E402
from autosched_backend_autotvm.tuners.config_sampler import ConfigSampler  # noqa: E402
from autosched_tvm.commands import ranker_training  # noqa: E402
from autosched_tvm.commands.ranker_training import STORE, main  # noqa: E402
from autosched_tvm.compile import workload_program  # noqa: E402
from autosched_tvm.ranking import ranker  # noqa: E402
from autosched_tvm.ranking.measured_task import Family  # noqa: E402
from autosched_tvm.tuning.search_method import SearchContext  # noqa: E402
from samples_of_store import HERE, LAB, measured  # noqa: E402
from unit.autotvm import kernels  # noqa: E402

NETWORKS = 5
CONFIGURATIONS = 24
TARGET = tvm.target.Target(json.loads(HERE.target))


def product(network: int) -> tuple[Workload, Program, Iterator[tuple[str, float]]]:
    """Returns a product, its program, and candidates with made-up latencies in seconds: larger tiles are faster."""
    module = kernels.product(64, 32 << network, 48)
    template = template_matching.find(module, TARGET).template
    assert template is not None
    space = template.space()
    maker = Maker(module, template, space)

    def candidates() -> Iterator[tuple[str, float]]:
        for index in ConfigSampler(space, 0, 0).fresh(random.Random(network), CONFIGURATIONS, ()):
            config: dict[str, Any] = space.config(index)
            made = maker.make(config)
            if made is not None:
                yield made[0].decode(), 2.0 ** -min(config["tile_m"], 8) / config["tile_n"]

    return (
        Workload(f"{network:x}", "dense", f"dense 64x48x{32 << network}"),
        workload_program.of_module(module),
        candidates(),
    )


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a store with one product in each of five networks."""
    found = f"sqlite:///{tmp_path}/records.db"
    monkeypatch.setenv(STORE, found)
    with closing(RecordStore(found)) as store:
        for network in range(NETWORKS):
            add(store, network)
    return found


def add(store: RecordStore, network: int) -> None:
    """Adds the measurements of one network."""
    workload, program, candidates = product(network)
    job = SourceJob(network, "", f"net{network}.onnx")
    rows: list[Measurement] = [
        measured(trial, s, candidate=candidate, workload=workload, job=job)
        for trial, (candidate, s) in enumerate(candidates)
    ]
    store.add(LAB, rows)
    store.add_programs({workload: program})


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """Returns the answer of the program."""
    main(["--settings", "1", *words])
    return msgspec.json.decode(capsys.readouterr().out.splitlines()[-1], type=dict[str, Any])


def test_a_ranker_is_trained_once_until_a_fifth_more_is_known(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    (first,) = asked(capsys)["trained"]
    assert first["family"] == "matmul_nn.llvm"
    assert first["refused"] == "", first
    with closing(Lookup(url)) as lookup:
        stored = lookup.ranker(first["family"], HERE.device)
        assert stored is not None
        assert stored.quality["ranker"] > stored.quality["random"]
        assert ranker.decode_ranker(stored.content, Family(stored.family, stored.version.split()[1])) is not None
    assert asked(capsys)["trained"] == []
    assert [one["family"] for one in asked(capsys, "--all")["trained"]] == [first["family"]]
    with closing(RecordStore(url)) as store:
        store.put_ranker(msgspec.structs.replace(stored, version="1 earlier"))
    assert [one["family"] for one in asked(capsys)["trained"]] == [first["family"]], "the template is another one now"
    with closing(RecordStore(url)) as store:
        add(store, NETWORKS)
    (again,) = asked(capsys)["trained"]
    assert again["quality"]["networks"] == NETWORKS + 1


def test_the_beginning_of_a_training_and_unreadable_programs_are_told_first(
    url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with closing(RecordStore(url)) as store:
        workload = Workload("ff", "dense", "dense of another TVM")
        store.add(LAB, [measured(1, 1e-3, candidate="[]", workload=workload, job=SourceJob(9, "", "old.onnx"))])
        store.add_programs({workload: Program(form="tvm 0.1", content=b"torn")})
    main(["--settings", "1"])
    unreadable, begun, trained, answer = map(msgspec.json.decode, capfd.readouterr().out.splitlines())
    assert unreadable == {"unreadable": 1}
    assert begun == {
        "begun": "matmul_nn.llvm", "device": HERE.device, "schedules": NETWORKS * CONFIGURATIONS, "networks": NETWORKS,
    }  # fmt: skip
    assert answer == {"ok": True, "trained": [trained]}


def speeds(candidates: list[bytes]) -> list[float]:
    """Returns the logarithms of the made-up speeds of candidates, see `product`."""
    configs = [json.loads(candidate)[-1]["config"] for candidate in candidates]
    return [min(config["tile_m"], 8) + math.log2(config["tile_n"]) for config in configs]


@pytest.mark.parametrize("content", ["trained", "unreadable", "none"])
def test_a_search_begins_with_the_order_of_a_ranker(content: str, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(capsys)["trained"][0]["refused"] == ""
    with closing(Lookup(url)) as lookup:
        stored = lookup.ranker("matmul_nn.llvm", HERE.device)
    assert stored is not None
    rankers = {"trained": {stored.family: stored.content}, "unreadable": {stored.family: b"torn"}, "none": {}}[content]
    info = TaskInfo(task=1, name="dense", workload="00ff")
    site = SearchContext(info, kernels.product(96, 160, 80), TARGET, 7, 1, rankers=rankers)
    search = AutoTvmMethod(Options()).search(site)
    blind = speeds(AutoTvmMethod(Options(tuner="random")).search(site).select(32))
    if content == "trained":
        assert min(speeds(search.ranked(2))) > fmean(blind)
        assert fmean(speeds(search.select(8))) > fmean(blind)
    else:
        assert search.ranked(2) == []
        assert len(search.select(8)) == 8


def test_schedules_of_another_template_version_are_not_learned(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(Lookup(url)) as lookup:
        (tasks,) = ranker_training.measured(lookup, "autotvm")[0].values()
    assert len(tasks) == NETWORKS
    with closing(RecordStore(url)) as store:
        workload, _, candidates = product(0)
        other = [
            measured(900 + n, s, candidate=text.replace('"version":"', '"version":"old'), workload=workload)
            for n, (text, s) in enumerate(candidates)
        ]
        store.add(LAB, other)
    with closing(Lookup(url)) as lookup:
        (again,) = ranker_training.measured(lookup, "autotvm")[0].values()
    assert sorted(map(len, again)) == sorted(map(len, tasks))


def test_a_backend_without_tvm_has_no_rankers(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    answer = asked(capsys, "--backend", "mock")
    assert answer["error"] == "backend 'mock' does not work on TVM: there are no rankers for it"
