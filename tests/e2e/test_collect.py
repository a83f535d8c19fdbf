"""Tasks of networks are collected in several sizes, tuned in advance, and known to a later job."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from deadlines import until
from integration.lab import Lab, Said

pytest.importorskip("tvm")
pytest.importorskip("onnx")

import onnx

from autosched.collecting import filler
from autosched.model import Purpose
from nets import conv_net, small_net

pytestmark = pytest.mark.tvm


def test_tasks_are_collected_tuned_and_known(
    there: Lab, cli: Callable[..., Said], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nets = tmp_path / "nets"
    nets.mkdir()
    onnx.save(small_net(), nets / "small.onnx")
    onnx.save(conv_net(), nets / "conv.onnx")
    (nets / "none.onnx").write_bytes(b"no model")
    config = ("--config", there.config)
    code, out, err = cli("collect", "nets", "--mutate", "batch=1,2", *config)
    assert code == 1
    assert "none.onnx is left out: " in err
    assert "nets/small.onnx: 2 sizes, " in out
    assert "2 models in 4 sizes: " in err
    assert cli("collect", "nets/small.onnx", "--mutate", "batch=1,2", *config)[1].startswith(
        " nets/small.onnx: collected before\n"
    )
    code, out, err = cli("collect", "-o", "json", *config)
    tasks = json.loads(out)["tasks"]
    assert code == 0
    assert len({task["workload"]["hash"] for task in tasks}) == len(tasks)
    assert sum(task["share"] for task in tasks) == pytest.approx(1)
    assert {task["known"]["tried"] for task in tasks} == {0}

    monkeypatch.setattr(filler, "LEFT_LEAST_S", 599.0)  # one job
    monkeypatch.setattr(filler, "TASKS", len(tasks))
    monkeypatch.setattr(filler, "TRIALS", 5)
    code, out, err = cli("collect", "--budget", "10m", "-o", "jsonl", *config)
    assert code == 0, err
    told, tuned = [], []
    for line in out.splitlines():
        (tuned if line.startswith("{") else told).append(line)
    assert told[0].startswith(f" job 1: {len(tasks)} tasks, ")
    assert "as fast as untuned" in told[0]
    known = {task["workload"]["hash"]: task["known"] for task in map(json.loads, tuned)}
    assert all(one["tried"] for one in known.values())
    job = json.loads(cli("job", "1", "-o", "json")[1])["job"]
    assert job["labels"]["made-by"] == "collect"
    assert job["state"] == "done"
    assert cli("fetch", "1")[0] != 0, "there is no network"

    code, out, err = cli("tune", "nets/small.onnx", "--trials", 8)
    assert code == 0, err
    last = int(cli("jobs", "-o", "id")[1].split()[-1])
    until(lambda: any(record.purpose is Purpose.KNOWN for record in there.records(last)), "what is known is taken over")


def test_networks_that_cannot_be_collected_are_reported(cli: Callable[..., Said], there: Lab) -> None:
    config = ("--config", there.config)
    for words, why in (
        (("none.onnx",), "neither a file nor a model of the zoo"),
        (("--mutate", "batch=2"), "name them"),
        (("--idle", "--budget", "1h"), "choose one of them"),
        (("--target", "cuda"), "names no architecture"),
        (("--backend", "gcc"), "does not work on TVM"),
        ((), "no tasks are collected|there is no record store"),
    ):
        code, _, err = cli("collect", *words, *config)
        assert code != 0, words
        assert any(part in err for part in why.split("|")), err
