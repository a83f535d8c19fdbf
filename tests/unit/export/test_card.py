"""The card of a packed network."""

from typing import Any

import pytest
from msgspec.structs import replace

from autosched import report
from autosched.export import card
from samples import evaluation, job_view, records, spans

SIDE: dict[str, Any] = {
    "name": "net", "file": "net.onnx", "model": "a" * 64, "verified": "ONNX Runtime 1.31",
    "inputs": [{"name": "x|y", "dtype": "float32", "shape": [1, 3, 8]}, {"name": "n", "dtype": "int64", "shape": []}],
    "outputs": [{"name": "`out`", "dtype": "bool", "shape": [4]}],
    "target": {"kind": "llvm", "mcpu": "znver4", "num-cores": 2}, "features": ["avx2", "fma"],
    "versions": {"autosched": "1.1.0", "apache-tvm": "0.27.0"}, "kernels": {"a": "tuned", "b": "by rule", "c": "tuned"},
    "weights": {"parts": [{"bytes": 3 << 20}]}, "about": {"producer_name": "pytorch", "description": "two\nlines <b>"},
}  # fmt: skip
TEXTS = ("NOTICE", "LICENSES/Apache-2.0.txt")


def written(side: dict[str, Any] | None = None, measured: Any = None, texts: tuple[str, ...] = TEXTS) -> str:
    told = report.gather(job_view(), measured or evaluation(), records(), spans())
    return card.written([(SIDE | (side or {}), told)], texts)


def test_the_card_says_everything_once() -> None:
    text = written()
    for wanted in (
        "| input | x\\|y | float32 | 1 x 3 x 8 |",
        "| input | n | int64 | scalar |",
        "| output | 'out' | bool | 4 |",
        f"- model: net.onnx, SHA-256 {'a' * 64}",
        "- made by: pytorch",
        "- its author says: two lines &lt;b>",
        "- compiled with: apache-tvm 0.27.0, autosched 1.1.0",
        "- schedules of its 3 kernels: 1 by rule, 2 tuned",
        "Outputs equal to ONNX Runtime",
        "| this network | 16.0 ms |",
        "CPUs like znver4, which grant 2 features: avx2, fma.",
        "tuned for 2 cores",
        "3.0 MiB of memory",
        "see NOTICE, LICENSES/Apache-2.0.txt.",
        "it was not given (--licence)",
    ):
        assert text.count(wanted) == 1, wanted
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        "# net", "## Interface", "## Origin", "## Verification", "## Latency", "## Limits", "## Licences",
    ]  # fmt: skip


def test_what_is_unknown_is_said() -> None:
    text = card.written([({**SIDE, "verified": "", "model": "", "kernels": {}, "about": {}}, None)], TEXTS)
    assert "NOT VERIFIED" in text
    assert "SHA-256 unknown" in text
    assert "Not measured." in text
    assert "No latency is promised" in text
    assert "verified" not in text.lower().replace("not verified", "")
    assert "Its outputs were compared with those of ONNX Runtime 1.31" in card.written([(SIDE, None)], TEXTS)


def test_integers_and_the_models_licence_are_said() -> None:
    text = written({"integers": True}, texts=(*TEXTS, "LICENSES/model.txt"))
    assert "multiplies 8-bit integers" in text
    assert "The model's own licence: LICENSES/model.txt." in text


def test_the_promise_is_the_published_builds() -> None:
    found = card.promise(report.gather(job_view(), evaluation(), records(), spans()))
    assert found is not None
    assert found["median_s"] == 0.016
    assert found["ratio"] == pytest.approx(0.016 / 0.0046)
    for measured in (
        replace(evaluation(), published=""),
        replace(evaluation(), board="pi"),
    ):
        assert card.promise(report.gather(job_view(), measured, records(), spans())) is None
    alone = replace(evaluation(), timings=tuple(one for one in evaluation().timings if one.name == "tuned"))
    found = card.promise(report.gather(job_view(), alone, records(), spans()))
    assert found is not None
    assert "ratio" not in found


def test_each_variant_has_its_verification_latency_and_limits() -> None:
    told = report.gather(job_view(), evaluation(), records(), spans())
    old = SIDE | {"target": {"kind": "llvm", "mcpu": "x86-64-v2"}, "features": []}
    text = card.written([(SIDE, told), (old, None)], TEXTS)
    assert "compiled for 2 kinds of CPU" in text
    for wanted in ("## Latency on znver4", "## Latency on x86-64-v2", "## Limits on x86-64-v2", "Not measured."):
        assert text.count(wanted) == 1, wanted
