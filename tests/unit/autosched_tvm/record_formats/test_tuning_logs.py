"""Logs of AutoTVM and Ansor become first candidates of searches."""

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tvm")

import tvm
from msgspec.structs import replace
from tvm import te

from autosched.cli.command_table import run
from autosched.errors import RequestError
from autosched.recordstore.catalogue import Catalogue
from autosched.recordstore.json_lines import Taken
from autosched.recordstore.keys import Environment
from autosched.recordstore.rows import Workload
from autosched.recordstore.store import RecordStore
from autosched_tvm.compile import candidate_build, workload_program
from autosched_tvm.compile.task_extraction import hash_of
from autosched_tvm.record_formats import tuning_logs
from autosched_tvm.record_formats.tuning_logs import SEEDS_MAX, Dropped, seed_of
from autosched_tvm.tuning import schedule_traces
from samples_of_store import LAB, measured

HERE = Environment('{"kind":"llvm","mcpu":"x86-64-v3"}', 1, "tvm", "tvm 1", "ansor 1", "trace 1", "AMD EPYC")
CONV_KNOBS: list[list[Any]] = [
    ["tile_ic", "sp", [-1, 8]], ["tile_oc", "sp", [-1, 16]], ["tile_ow", "sp", [-1, 7]], ["unroll_kw", "ot", True],
]  # fmt: skip
CONV: list[Any] = [
    ["TENSOR", [1, 32, 14, 14], "float32"], ["TENSOR", [64, 32, 3, 3], "float32"], [1, 1], [1, 1, 1, 1], [1, 1],
    "NCHW", "NCHW", "float32",
]  # fmt: skip
DENSE: list[Any] = [["TENSOR", [64, 128], "float32"], ["TENSOR", [32, 128], "float32"], None, "float32"]
DENSE_KNOBS = [["tile_y", "sp", [-1, 4, 2]], ["tile_x", "sp", [-1, 8]], ["tile_k", "sp", [-1, 16]]]
SPLITS: list[list[Any]] = [
    ["CHW", 2, "local"], ["SP", 2, 0, 64, [2, 4, 1], 1], ["SP", 2, 4, 32, [1, 2, 8], 1], ["SP", 2, 8, 128, [16], 1],
    ["RE", 2, [0, 4, 1, 5, 8, 2, 6, 9, 3, 7]], ["FSP", 3, 0, 1, 2], ["PR", 2, 0, "auto_unroll_max_step$64"],
]  # fmt: skip


def autotvm(template: str = "conv2d_NCHWc.x86", arguments: Any = CONV, knobs: Any = CONV_KNOBS, **more: Any) -> bytes:
    told = {
        "input": ["llvm -mcpu=skylake-avx512", template, arguments, {}],
        "config": {"index": 1, "code_hash": None, "entity": knobs},
        "result": [[2e-3, 4e-3], 0, 1.7, 1.5e9], "version": 0.2, "tvm_version": "0.7",
    }  # fmt: skip
    return json.dumps(told | more).encode()


def ansor(steps: Any = SPLITS, target: str = "llvm -keys=cpu -mcpu=core-avx2", **more: Any) -> bytes:
    told = {
        "i": [['["hash", 64]', target, [16, 64], "", 1, []], [[], steps]],
        "r": [[3e-3], 0, 0.1, 1.6e9],
        "v": "v0.6",
    }
    return json.dumps(told | more).encode()


def multiply(rows: int = 64, columns: int = 32, depth: int = 128) -> Any:
    left, right = te.placeholder((rows, depth), name="left"), te.placeholder((columns, depth), name="right")
    k = te.reduce_axis((0, depth), name="k")
    out = te.compute((rows, columns), lambda i, j: te.sum(left[i, k] * right[j, k], axis=k), name="out")
    return tvm.IRModule({"main": te.create_prim_func([left, right, out])})


@pytest.fixture
def store(tmp_path: Path) -> str:
    """A store with a matrix product, with its program, and another one without."""
    url = f"sqlite:///{tmp_path}/records.db"
    module = multiply()
    workload = Workload(hash_of(module), "dense", "dense 64x128 -> 64x32")
    with contextlib.closing(RecordStore(url)) as filled:
        filled.add(LAB, [measured(0, 1e-3, workload=workload, where=HERE)])
        filled.add(LAB, [measured(1, 1e-3, workload=Workload("beef"), where=HERE)])
        filled.add_programs({workload: workload_program.of_module(module)})
    return url


def taken(url: str, *lines: bytes) -> tuple[Taken, dict[int, str]]:
    told: dict[int, str] = {}
    with contextlib.closing(RecordStore(url)) as target, Catalogue(url) as known:
        return tuning_logs.read(io.BytesIO(b"\n".join(lines)), target, known, told.__setitem__), told


# Lines ----------------------------------------------------------------------------------------------------------------


def test_a_convolution_of_autotvm_is_tiled_in_blocks_or_not() -> None:
    seed = seed_of(autotvm())
    blocked, plain = seed.tilings
    window = ((4, 8), (3, 1), (1, 3))
    assert blocked == ((1, 1, 1, 1), (4, 1, 1, 1), (14, 1, 1, 1), (2, 1, 1, 7), (1, 1, 1, 16), *window)
    assert plain == ((1, 1, 1, 1), (4, 1, 1, 16), (14, 1, 1, 1), (2, 1, 1, 7), *window)
    assert (seed.unroll, seed.latency_s, seed.measured_at, seed.tuner) == (64, (2e-3, 4e-3), 1.5e9, "AutoTVM")


def test_strides_padding_and_dilation_decide_the_size_of_the_output() -> None:
    arguments = [*CONV[:2], [2, 2], [0, 0], [2, 2], *CONV[5:]]
    knobs = [*CONV_KNOBS[:2], ["tile_ow", "sp", [-1, 5]], ["unroll_kw", "ot", False]]
    blocked, _ = seed_of(autotvm(arguments=arguments, knobs=knobs)).tilings
    assert blocked[2:4] == ((5, 1, 1, 1), (1, 1, 1, 5))
    assert blocked[-1] == (3, 1)


def test_a_depthwise_convolution_has_no_channels_to_reduce() -> None:
    arguments = [CONV[0], ["TENSOR", [32, 1, 3, 3], "float32"], *CONV[2:]]
    blocked, _ = seed_of(autotvm("depthwise_conv2d_NCHWc.x86", arguments)).tilings
    assert blocked[1] == (2, 1, 1, 1)
    assert blocked[5:] == ((3, 1), (1, 3))


def test_a_matrix_product_of_autotvm() -> None:
    (tiling,) = seed_of(autotvm("dense_pack.x86", DENSE, DENSE_KNOBS)).tilings
    assert tiling == ((8, 1, 4, 2), (4, 1, 1, 8), (8, 16))


def test_splits_of_ansor_are_tiles() -> None:
    seed = seed_of(ansor())
    assert seed.tilings == (((8, 2, 4, 1), (2, 1, 2, 8), (8, 16)),)
    assert (seed.unroll, seed.latency_s, seed.tuner) == (64, (3e-3,), "Ansor")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (autotvm("conv2d_winograd.x86"), "conv2d_winograd.x86 has no counterpart"),
        (autotvm(result=[[1e9], 4, 1.0, 1.0]), "it failed there"),
        (autotvm(result=[[], 0, 1.0, 1.0]), "it failed there"),
        (autotvm(input=["cuda", "conv2d_NCHWc.x86", CONV, {}]), "it is for another kind of device"),
        (autotvm(arguments=[["TENSOR", [1, 2, 14, 14, 16], "float32"], *CONV[1:]]), "its tensors are in blocks"),
        (ansor(target="cuda -keys=gpu"), "it is for another kind of device"),
        (ansor(r=[[1e10], 2, 0.1, 1.0]), "it failed there"),
        (ansor(SPLITS[:1]), "it tiles no stage, or several"),
        (ansor([*SPLITS, ["SP", 5, 0, 64, [1, 1, 1], 1]]), "it tiles no stage, or several"),
        (ansor([*SPLITS, ["SP", 2, 9, 8, [1, 1, 1, 1], 1]]), "its tiles have other levels than those of a CPU"),
    ],
)
def test_unusable_lines_have_a_reason(line: bytes, reason: str) -> None:
    with pytest.raises(Dropped, match=f"^{reason}$"):
        seed_of(line)


@pytest.mark.parametrize(
    "line",
    [
        b"", b"[]", b"{}", b"nonsense", b"[" * 100_000, autotvm(version=0.1), autotvm(input=[]), autotvm(config={}),
        autotvm(result=[[-1.0], 0, 1.0]), autotvm(result=[[float("nan")], 0, 1.0]), autotvm(knobs=CONV_KNOBS[:1]),
        autotvm(knobs=[["tile_ic", "sp", [-1, 7]], *CONV_KNOBS[1:]]),
        autotvm(knobs=[*CONV_KNOBS[:1], ["tile_oc", "sp", [-1, 0]], *CONV_KNOBS[2:]]),
        autotvm(arguments=[*CONV[:2], [0, 0], *CONV[3:]]), autotvm("dense_pack.x86", DENSE, CONV_KNOBS),
        ansor(v="v0.5"), ansor(i=[]), ansor([["SP", 2]]), ansor([["SP", 2, 0, 64, [7, 1, 1], 1]]),
        ansor([["SP", 2, 0, 64, [0, 1, 1], 1]]),
    ],
)  # fmt: skip
def test_malformed_lines_are_reported(line: bytes) -> None:
    with pytest.raises(RequestError, match="it is no "):
        seed_of(line)


# Stores ---------------------------------------------------------------------------------------------------------------


def test_seeds_are_schedules_of_workloads_that_are_known(store: str) -> None:
    log = b"# a package of TopHub", autotvm("dense_nopack.x86", DENSE, DENSE_KNOBS), b"", ansor(), autotvm(), b"no"
    found, wrong = taken(store, *log)
    assert (found.lines, found.wrong, found.seeded) == (4, 1, 1)
    assert wrong.keys() == {6}
    assert found.dropped == {"no known workload has loops of its extents": 1}
    assert found.new >= 2
    with Catalogue(store) as known:
        name = hash_of(multiply())
        hints = known.hints(name, replace(HERE, backend="autotvm 3"), 99)
    seeds = [one for one in hints if one.origin.imported]
    assert len(seeds) == found.new
    assert {one.origin.name for one in seeds} == {"AutoTVM", "Ansor"}
    wanted = {((8, 1, 4, 2), (4, 1, 1, 8), (8, 16)), ((8, 2, 4, 1), (2, 1, 2, 8), (8, 16))}
    for one in seeds:
        trace = schedule_traces.read(one.candidate)
        assert trace is not None
        assert trace.decisions[:3] in wanted
        assert candidate_build.scheduled(multiply(), one.candidate) is not None
    assert taken(store, *log)[0].new == 0


def test_only_the_fastest_of_a_log_are_kept(store: str) -> None:
    lines = [
        autotvm("dense_nopack.x86", DENSE, DENSE_KNOBS, result=[[1e-3 * (99 - number)], 0, 1.0, 1.0 + number])
        for number in range(SEEDS_MAX + 9)
    ]
    found, _ = taken(store, *lines)
    assert found.dropped == {f"slower than the {SEEDS_MAX} best of its workload": 9}
    with Catalogue(store) as known:
        least = min(one.best_s or 1.0 for one in known.hints(hash_of(multiply()), HERE, 999) if one.origin.imported)
    assert least == pytest.approx(1e-3 * (99 - SEEDS_MAX - 8))


def test_a_line_that_is_too_long_is_malformed(store: str) -> None:
    found, wrong = taken(store, b"x" * (tuning_logs.LINE_BYTES_MAX + 10), ansor())
    assert (found.wrong, found.seeded, list(wrong)) == (1, 1, [1])


def test_the_command_reads_logs_and_databases(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [b"# a package of TopHub", autotvm("dense_nopack.x86", DENSE, DENSE_KNOBS), autotvm()]
    (tmp_path / "dense.log").write_bytes(b"\n".join(lines))
    assert run(["records", "import", "dense.log", "--store", "records.db"]) == 0
    told = capsys.readouterr().err
    assert "new seeds for 1 known workload from 2 lines; left out: 1 no known workload" in told
    (tmp_path / "wrong.log").write_bytes(ansor() + b"\nno")
    assert run(["records", "import", "wrong.log", "--store", "records.db"]) == 2
    assert "wrong.log:2: it is no line of AutoTVM 0.2 or of Ansor 0.6" in capsys.readouterr().err
    export = ["records", "export", "db", "--as", "metaschedule", "--store", "records.db", "--backend", "ansor"]
    assert run(export) == 0
    assert "left out: 2 no schedules of MetaSchedule" in capsys.readouterr().err
    assert run(export) == 2
    assert "is there already" in capsys.readouterr().err
    assert run(["records", "import", "db", "--store", "other.db"]) == 0
    (tmp_path / "empty").mkdir()
    assert run(["records", "import", "empty", "--store", "other.db"]) == 4
    assert "it has no database_workload.json" in capsys.readouterr().err
