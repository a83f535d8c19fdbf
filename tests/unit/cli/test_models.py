"""`autosched models`: what the record store has of rankers, and how to get one."""

import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from autosched.api import on_demand, tvm_programs
from autosched.api.local_daemon import RECORDS_VARIABLE
from autosched.cli.command_table import run
from autosched.errors import DaemonUnreachable
from autosched.recordstore.rows import StoredRanker
from autosched.recordstore.store import RecordStore
from fake import Said

QUALITY = {"ranker": 0.912, "random": 0.5, "nearest": 0.7, "linear": 0.8, "networks": 17, "tasks": 300}
ONE = StoredRanker("conv2d_nchwc.llvm", "AMD EPYC", "1 ab", 12_345, 1.7e9, QUALITY, b"trees")


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty store, which commands use."""
    found = f"sqlite:///{tmp_path}/records.db"
    with closing(RecordStore(found)) as store:
        assert store.count() == 0
    monkeypatch.setenv("AUTOSCHED_RECORDS", found)
    return found


@pytest.fixture
def filled(url: str) -> None:
    """One ranker in the store."""
    with closing(RecordStore(url)) as store:
        store.put_ranker(ONE)


def said(capsys: pytest.CaptureFixture[str], *words: str) -> Said:
    """Returns the exit code and the output of a command."""
    code = run(["models", *words])
    found = capsys.readouterr()
    return code, found.out, found.err


def test_without_a_model_the_list_tells_how_to_get_one(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = said(capsys)
    assert code == 0
    assert "autosched models train" in err


def test_the_list_compares_a_model_with_the_baselines(filled: None, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = said(capsys, "list", "-o", "wide")
    head, row = out.splitlines()
    assert head.split() == [
        "FAMILY", "DEVICE", "SCHEDULES", "NETS", "NDCG@8", "RANDOM", "NEAREST", "LINEAR", "AGE",
    ]  # fmt: skip
    assert row.split()[:2] == ["conv2d_nchwc.llvm", "AMD"]
    assert row.split()[3:9] == ["12,345", "17", "0.912", "0.500", "0.700", "0.800"]


def test_a_model_is_shown_without_its_content(filled: None, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = said(capsys, ONE.family)
    assert " conv2d_nchwc.llvm on AMD EPYC" in out
    assert " ranker     0.912" in out.splitlines()
    (shown,) = json.loads(said(capsys, "show", ONE.family, "-o", "json")[1])["models"]
    assert shown["quality"] == QUALITY
    assert shown["content"] == ""


def test_an_unknown_family_is_an_error_with_the_way_to_the_list(
    filled: None, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = said(capsys, "show", "pooling")
    assert code == 4
    assert "autosched models list" in err


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([], ["No model is due"]),
        (
            [
                {"unreadable": 2},
                {"begun": "f", "device": "EPYC", "schedules": 7_302, "networks": 17},
                {"family": "f", "refused": "", "quality": QUALITY},
                {"begun": "g", "device": "", "schedules": 24, "networks": 1},
                {"family": "g", "refused": "it is no better than chance", "quality": QUALITY},
            ],
            [
                "Passed over: 2 workloads of the store that this TVM cannot read",
                "f on EPYC: learning from 7,302 schedules of 17 networks ...",
                "f: NDCG@8 0.912 over 17 networks (chance 0.500)",
                "g on an unknown device: learning from 24 schedules of 1 network ...",
                "g: it is no better than chance",
            ],
        ),
    ],
)
def test_training_tells_what_it_learns_from_and_the_quality_of_each_family(
    lines: list[Any], told: list[str], url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    async def ask(program: str, words: Sequence[str], **more: Any) -> dict[str, Any]:
        asked.append((program, words, more["environment"]))
        answer = {"ok": True, "trained": [one for one in lines if "family" in one]}
        for one in [*lines, answer]:
            more["on_object"](one)
        return answer

    def nowhere(*_: object, **__: object) -> object:
        raise DaemonUnreachable("no daemon")

    monkeypatch.setattr(tvm_programs, "ask", ask)
    monkeypatch.setattr(on_demand, "connected", nowhere)
    code, _, err = said(capsys, "train", "--all")
    assert code == 0
    for heard, expected in zip(err.splitlines(), told, strict=True):
        assert expected in heard
    assert asked == [(tvm_programs.RANKER_TRAINING, ["--backend", "autotvm", "--all"], {RECORDS_VARIABLE: url})]
