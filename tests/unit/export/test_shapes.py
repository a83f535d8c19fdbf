"""Networks for several shapes in one file."""

import json
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tvm")

import autosched_runtime
from autosched.errors import RequestError
from autosched.export import Form, export
from autosched.export.network_file import longer_ones
from autosched_runtime.__main__ import main
from autosched_runtime.check import check
from autosched_runtime.errors import InvalidInput
from deadlines import DEADLINE_S
from unit.autosched_runtime.small_networks import X
from unit.autosched_runtime.test_network import elsewhere
from unit.export.packed import tuned

pytestmark = pytest.mark.tvm
SIZES = 4, 1, 2


def rows(count: int) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    return np.tile(X, (count, 1)) + np.arange(count, dtype="float32")[:, None]


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("shapes")
    paths = []
    for count in SIZES:
        (folder / str(count)).mkdir()
        paths.append(tuned(folder / str(count), rows=count))
    return paths


@pytest.fixture(scope="module")
def packed(modules: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(modules, Form.FILE, tmp_path_factory.mktemp("packed") / "net.asn")


def test_the_shapes_of_the_inputs_decide(packed: Path) -> None:
    network = autosched_runtime.load(packed)
    for count in (1, 4, 2, 4, 1):
        for given in ({"x": rows(count)}, [rows(count)], (rows(count),)):
            assert np.array_equal(network.run(given)[0], rows(count) + 1)
    assert np.array_equal(network.submit({"x": rows(2)}).result()[0], rows(2) + 1)
    assert np.array_equal(network.run({"x": rows(2).tolist()})[0], rows(2) + 1)


def test_a_session_takes_all_of_them_and_names_what_varies(packed: Path) -> None:
    session = autosched_runtime.InferenceSession(packed)
    assert session.get_inputs()[0].shape == ["x_0", 64]
    assert session.get_outputs()[0].shape == ["x_0", 64]
    for count in SIZES:
        assert np.array_equal(session.run(None, {"x": rows(count)})[0], rows(count) + 1)


def test_other_shapes_are_refused_with_those_that_there_are(packed: Path) -> None:
    network = autosched_runtime.load(packed)
    there = "it has those for: 'x' of 1x64; 'x' of 2x64; 'x' of 4x64. Tune it with --shape for more"
    with pytest.raises(InvalidInput, match=re.escape(f"net.asn has no network for 'x' of 3x64; {there}")):
        network.run({"x": rows(3)})
    with pytest.raises(InvalidInput, match="'x' is missing"):
        network.run({})
    with pytest.raises(InvalidInput, match="no input 'y'"):
        network.run({"x": rows(1), "y": rows(1)})
    with pytest.raises(InvalidInput, match="2 inputs given, 1 wanted"):
        network.run([rows(1), rows(1)])
    with pytest.raises(InvalidInput, match="given as float64"):
        network.run([rows(1).astype("float64")])


def test_weights_are_in_the_file_and_in_memory_once(packed: Path, modules: list[Path], tmp_path: Path) -> None:
    alone = export(modules[:1], Form.FILE, tmp_path / "net.asn")
    assert packed.stat().st_size < alone.stat().st_size + (1 << 18)
    program = """
        import sys
        import numpy as np
        import autosched_runtime
        network = autosched_runtime.load(sys.argv[1])
        for one in network.networks:
            one.run([np.zeros(one.description.inputs[0].shape, "float32")])
        print(len({one._executable.weights.arrays[0].ctypes.data for one in network.networks}))
    """
    assert elsewhere(program, str(packed)) == "1"


def test_weights_with_which_others_begin_are_in_the_file_once(modules: list[Path], tmp_path: Path) -> None:
    others = []
    for rows_, megabytes in ((1, 2), (2, 3)):
        (tmp_path / str(rows_)).mkdir()
        others.append(tuned(tmp_path / str(rows_), rows=rows_, megabytes=megabytes))
    path = export([modules[0], *others], Form.FILE, tmp_path / "net.asn")  # 1 MB, 2 MB and 3 MB
    assert path.stat().st_size < 3 * (1 << 20) + (1 << 18)
    network = autosched_runtime.load(path)
    for count in (1, 2, 4):
        assert np.array_equal(network.run([rows(count)])[0], rows(count) + 1)


def test_weights_that_begin_alike_are_kept_both() -> None:
    begin = bytes(range(64)) * 2
    known = {b"long": begin + b"12345678", b"other": begin + b"1234X", b"short": begin + b"123"}
    assert longer_ones(known) == {b"short": b"long"}


def test_few_networks_of_a_range_have_samples(tmp_path: Path) -> None:
    modules = []
    for count in (8, 16, 24, 32, 40, 48):
        (tmp_path / str(count)).mkdir()
        modules.append(tuned(tmp_path / str(count), rows=count))
    shapes = {"axes": {"x": 0}, "outputs": [{"axis": 0, "factor": 1, "offset": 0}], "least": 1, "ones": []}
    path = export(modules, Form.FILE, tmp_path / "net.asn", padding=shapes)
    network = autosched_runtime.load(path)
    assert sorted({sample.inputs[0].shape[0] for sample in network.samples()}) == [8, 24, 48]
    assert len(check(path, seconds=0)) == 3
    assert np.array_equal(network.run([rows(9)])[0], rows(9) + 1)


def test_samples_and_the_check_are_of_all_shapes(packed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    network = autosched_runtime.load(packed)
    assert [sample.inputs[0].shape[0] for sample in network.samples()] == [1, 1, 2, 2, 4, 4]
    assert main(["check", str(packed), "--seconds", "0"]) == 0
    with zipfile.ZipFile(packed) as archive:
        said = archive.read("card.md").decode()
    assert "| input | x | float32 | 1 x 64 or 2 x 64 or 4 x 64 |" in said


def test_networks_of_other_kinds_of_inputs_are_refused(modules: list[Path], tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="with inputs of 4x64: name one"):
        export([modules[0], modules[0]], Form.FILE, tmp_path / "net.asn")
    other = tuned(tmp_path)  # of one dimension
    with pytest.raises(RequestError, match="differ in their interface"):
        export([modules[0], other], Form.FILE, tmp_path / "net.asn")


def test_c_opens_each_of_them(packed: Path, tmp_path: Path) -> None:
    if missing := [tool for tool in ("cmake", "gcc", "g++") if shutil.which(tool) is None]:
        pytest.skip(f"{missing[0]} is not installed")
    (tmp_path / "one").mkdir()
    project = export([tuned(tmp_path / "one")], Form.C)
    (project / "shapes.c").write_text(r"""
#include "autosched_network.h"
#include <stdio.h>
int main(int count, char **words) {
    as_network *network;
    for (size_t number = 0; count == 2 && as_network_open_shape(words[1], number, &network) == 0; number++) {
        printf("%d ", (int)as_input(network, 0)->shape[0]);
        as_network_close(network);
    }
    printf("%s\n", as_message());
    return 0;
}
""")
    with (project / "CMakeLists.txt").open("a") as file:
        file.write("\nadd_executable(shapes shapes.c)\ntarget_link_libraries(shapes PRIVATE autosched_network)\n")
    for words in (["-S", project, "-B", project / "build"], ["--build", project / "build"]):
        subprocess.run(["cmake", *words], check=True, capture_output=True, timeout=DEADLINE_S)
    done = subprocess.run(
        [project / "build/shapes", packed], check=True, capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert done.stdout.startswith("1 2 4 ")
    assert "has no more networks for other shapes" in done.stdout


def test_a_small_variant_of_another_cpu_is_not_among_them(modules: list[Path], tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    other = tuned(tmp_path / "new", rows=8)
    side = json.loads(other.with_suffix(".json").read_text())
    side["target"]["mcpu"], side["features"] = "new", ["amx-fp16"]
    other.with_suffix(".json").write_text(json.dumps(side))
    network = autosched_runtime.load(export([*modules, other], Form.FILE, tmp_path / "net.asn"))
    with pytest.raises(InvalidInput, match="has no network for 'x' of 8x64"):
        network.run([rows(8)])
