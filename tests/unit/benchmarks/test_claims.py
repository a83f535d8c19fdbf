"""The page of claims: its figures are those of the raw results, and its commands exist."""

import json
import re
from typing import Any

import claims
import pytest
import run
import tables
from raw_results import stamps


def row(name: str, **median_s: float) -> dict[str, Any]:
    return {"name": name, "median_s": median_s, "difference": {}}


def test_ratios_are_over_the_fastest_engine_that_takes_part() -> None:
    rows = [
        row("a", autosched=1.0, onnxruntime=2.0, ncnn=1.0),
        row("b", autosched=1.0, onnxruntime=0.5),
        row("c", autosched=1.0),
    ]
    assert claims.ratios(rows, ("onnxruntime",)) == [0.5, 2.0]
    assert claims.ratios(rows, claims.ENGINES) == [1.0, 2.0]


def test_an_engine_with_other_outputs_is_no_rival() -> None:
    one = row("a", autosched=1.0, onnxruntime=2.0, mnn=0.001)
    one["difference"] = {"mnn": 0.5, "onnxruntime": 0.0}
    assert claims.ratios([one], claims.ENGINES) == [0.5]


SOURCES = [source for sources in claims.SECTIONS.values() for source in sources]


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.results)
def test_each_claim_has_a_command_and_a_figure(source: claims.Source) -> None:
    told = json.loads((claims.RESULTS / f"{source.results}.json").read_text())
    assert source.command or source.results in run.BENCHMARKS
    assert run.program(source).is_file()
    assert all(re.fullmatch(r"20\d\d-\d\d-\d\d [0-9a-f]{7,}", " ".join(stamp)) for stamp in stamps(told))
    assert stamps(told)
    for claim in source.claims:
        assert claim.measured(told)


def test_rows_of_the_page_have_as_many_cells_as_their_head() -> None:
    for table in (part.splitlines() for part in claims.page().split("\n\n") if part.startswith("|")):
        assert len({line.count("|") for line in table}) == 1


def test_the_page_is_one_page() -> None:
    assert len(claims.page().splitlines()) <= 114


def test_raw_results_become_tables() -> None:
    told = {
        "machine": "one | two", "count": 3,
        "kinds": {"a": {"p50": 1.23456, "p99": 2.0}, "b": {"p50": 3.0, "p99": None}},
        "rows": [{"name": "x", "ms": {"best": 1.0}}, {"name": "y", "ms": {"best": 2.0}, "note": "late"}],
    }  # fmt: skip
    lines = list(tables.tables(told))
    assert "| machine | one / two |" in lines
    assert "| a | 1.235 | 2 |" in lines
    assert "| b | 3 |  |" in lines
    assert "| name | ms best | note |" in lines
    assert "| y | 2 | late |" in lines


@pytest.mark.parametrize("name", sorted(path.stem for path in claims.RESULTS.glob("*.json")))
def test_all_raw_results_can_be_shown(name: str) -> None:
    lines = list(tables.tables(json.loads((claims.RESULTS / f"{name}.json").read_text())))
    assert lines
    for table in "\n".join(lines).split("\n\n"):
        rows = [line for line in table.splitlines() if line.startswith("|")]
        assert len({line.count("|") for line in rows}) <= 1


@pytest.mark.parametrize(
    ("results", "program"),
    [
        ("zero_shot", "benchmarks/zero_shot.py"), ("search_ranked", "benchmarks/search_quality.py"),
        ("squeezenet", "benchmarks/whole_network.py"), ("record_kills", "tests/chaos/__main__.py"),
        ("seeds", "benchmarks/seeds.py"), ("fuzz", "tests/fuzz.py"), ("boards", "benchmarks/boards.py"),
    ],
)  # fmt: skip
def test_a_claim_is_that_of_its_program(results: str, program: str) -> None:
    (source,) = [source for source in SOURCES if source.results == results]
    assert run.program(source) == run.HERE.parent / program
