"""Names of files from any text: readable in every script, and never the same for two texts."""

import os
import re
from pathlib import Path

import pytest

from autosched import file_names

TEXTS = [
    "net", "模型", "网络", "modèle", "नेटवर्क", "сеть", "modèle ünï", "modèle_ünï", "my net", "my_net", "my  net", "..",
    ".", "", "-x", "x", "a/b", "a\\b", "a\nb", "x\u202ey", "xy", "e\u0301", "é", "b\udcffc", "b\udcfec", "n" * 300,
    "n" * 301, "模" * 90, "模" * 91, "$(reboot)", "`x`", "a;b", "a'b", 'a"b', "CON", "🐍", "_", "-", "__",
]  # fmt: skip


def test_names_never_collide() -> None:
    assert len({file_names.made_from(text) for text in TEXTS}) == len(TEXTS)


@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_a_name_is_a_name_of_a_file(text: str, tmp_path: Path) -> None:
    name = file_names.made_from(text)
    assert 0 < len(os.fsencode(name)) <= file_names.NAME_BYTES_MAX
    assert not re.search(r"[\s/\\'\"`$;()]", name)
    assert re.search(file_names.PATTERN, name), "other machines accept it"
    (tmp_path / f"{name}-tuned").mkdir()
    assert file_names.made_from(name) == name


@pytest.mark.parametrize("text", ["net", "模型", "modèle", "नेटवर्क", "сеть", "v1.2_x-y"])
def test_letters_of_every_script_stay(text: str) -> None:
    assert file_names.made_from(text) == text


@pytest.mark.parametrize(("name", "expected"), [
    ("模型.onnx", "模型.onnx"), ("net.tflite", "net.tflite"), ("my net.onnx", "my_net-b973.onnx"),
    (".onnx", "onnx-e0af"), ("net.o x", "net.o_x"),
])  # fmt: skip
def test_a_file_keeps_its_suffix(name: str, expected: str) -> None:
    assert file_names.made_from_file(name) == expected


@pytest.mark.parametrize("name", [
    "", ".hidden", "-option", "a b", "a/b", "../x", "a\\b", "a\nb", "a\x1b[2J", "a\u202eb", "a" * 201,
    "a\udc80", "a\u2028",
], ids=ascii)  # fmt: skip
def test_other_machines_give_no_harmful_names(name: str) -> None:
    assert not re.search(file_names.PATTERN, name)
