"""A compiled network in a process without TVM: inputs and outputs of all kinds, and files that are wrong."""

import gc
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import textwrap
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import _core

tvm = pytest.importorskip("tvm")

from autosched_runtime import executable, libraries  # noqa: E402
from autosched_runtime.errors import InvalidInput, NetworkError  # noqa: E402
from autosched_runtime.network import Network  # noqa: E402
from autosched_runtime.side_file import described  # noqa: E402
from deadlines import DEADLINE_S  # noqa: E402
from unit.autosched_runtime.small_networks import X, of_two_outputs, of_weights, tuned_for, written  # noqa: E402

pytestmark = pytest.mark.tvm
WEIGHTS_MB = 32


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tuned_for(written(tmp_path_factory.mktemp("network") / "net.so"), 1)


@pytest.fixture(scope="module")
def network(path: Path) -> Network:
    return Network(path)


def elsewhere(program: str, *words: str, **variables: str) -> str:
    """Returns what a Python program in a new process prints."""
    command = [sys.executable, "-c", textwrap.dedent(program), *words]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=DEADLINE_S, check=False, env={**os.environ, **variables}
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


def test_bound_inputs_outlive_the_machine_that_refers_to_them(path: Path) -> None:
    """TVM's machine keeps references to its last arguments, which it gives up when it has others, or ends."""
    network = Network(path, threads=1)
    inputs = [np.zeros(tensor.shape, tensor.dtype) for tensor in network.description.inputs]
    kept = []
    for _ in range(2):
        bound = network.bind(inputs)
        network.repeat(bound, 2)
        kept.append(weakref.ref(bound))
        del bound
    first, second = kept
    assert first() is None
    assert second() is not None
    network.run(inputs)
    network.close()
    gc.collect()
    assert second() is None


def test_a_process_without_memory_for_the_weights_says_so(path: Path, tmp_path: Path) -> None:
    program = """
        import resource, sys
        import autosched_runtime
        autosched_runtime.load(sys.argv[2])
        taken_kb = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmSize:"))
        limit = (int(taken_kb) << 10) + (32 << 20)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        try:
            autosched_runtime.load(sys.argv[1])
        except MemoryError as error:
            assert isinstance(error, autosched_runtime.NetworkError)
            print(error)
    """
    large = of_weights(tmp_path / "net.so", 64)
    assert elsewhere(program, str(large), str(path)) == (
        f"there is no memory for {large}, whose weights take 67.1 MB: free some, or raise the limit of this process"
        " (ulimit -v) or of its container"
    )


def test_neither_tvm_nor_its_hooks_come_into_the_process(path: Path) -> None:
    program = """
        import faulthandler, signal, sys
        faulthandler.enable()
        hook = sys.excepthook
        import numpy as np
        import autosched_runtime
        outputs = autosched_runtime.load(sys.argv[1]).run([np.arange(64, dtype="float32")])
        assert outputs[0][3] == 6.0
        assert sys.excepthook is hook
        print([name for name in sys.modules if name.split(".")[0] in ("tvm", "tvm_ffi", "msgspec", "autosched")])
    """
    assert elsewhere(program, str(path)) == "[]"


def test_the_handler_of_crashes_stays_that_of_the_program(path: Path) -> None:
    program = """
        import ctypes, sys
        process, before, after = ctypes.CDLL(None), ctypes.create_string_buffer(256), ctypes.create_string_buffer(256)
        process.sigaction(11, None, before)
        import autosched_runtime
        autosched_runtime.load(sys.argv[1])
        process.sigaction(11, None, after)
        print(before.raw[:8] == after.raw[:8])
    """
    assert elsewhere(program, str(path)) == "True"


def test_weights_are_in_memory_once_and_a_second_network_shares_them(tmp_path: Path) -> None:
    path = of_weights(tmp_path / "net.so", WEIGHTS_MB)
    program = """
        import re, sys
        from pathlib import Path
        import numpy as np
        import autosched_runtime.network
        def resident_mb():
            return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024
        before = resident_mb()
        one = autosched_runtime.load(sys.argv[1])
        after = resident_mb()
        other = autosched_runtime.load(sys.argv[1])
        print(after - before, resident_mb() - after)
        one.close()
        assert other.run([np.arange(64, dtype="float32")])[0][3] == 4.0
    """
    first_mb, second_mb = map(float, elsewhere(program, str(path)).split())
    assert WEIGHTS_MB < first_mb < 1.1 * WEIGHTS_MB + 25
    assert second_mb < 1


def test_weights_inside_of_the_library_are_read_too(tmp_path: Path) -> None:
    assert np.array_equal(Network(of_weights(tmp_path / "net.so", 1, inside=True)).run([X])[0], X + 1)


@pytest.fixture(scope="module")
def weighted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return of_weights(tmp_path_factory.mktemp("weighted") / "net.so", 1)


@pytest.fixture
def copied(weighted: Path, tmp_path: Path) -> Path:
    """A copy of the network with weights."""
    shutil.copy(weighted.with_suffix(".json"), tmp_path / "net.json")
    return Path(shutil.copy(weighted, tmp_path / "net.so"))


@pytest.mark.parametrize("place", [-1, -(1 << 19), 4096 - 1, 0x500], ids=["end", "weights", "before them", "library"])
def test_a_file_with_a_wrong_bit_is_refused(place: int, copied: Path) -> None:
    content = bytearray(copied.read_bytes())
    if place == 4096 - 1:
        place = described(copied.with_suffix(".json")).library.size - 1  # type: ignore[union-attr]
    content[place] ^= 0x10
    copied.write_bytes(content)
    with pytest.raises(NetworkError, match=r"net\.so cannot be loaded: .*net\.so is damaged"):
        Network(copied)


@pytest.mark.parametrize("lost", [1, 4096, 1 << 19])
def test_a_file_without_its_last_weights_is_refused(lost: int, copied: Path) -> None:
    os.truncate(copied, copied.stat().st_size - lost)
    with pytest.raises(NetworkError, match=r"net\.so is cut off"):
        Network(copied)


@pytest.mark.parametrize("how", ["overwritten", "emptied", "deleted"])
def test_a_file_that_is_lost_afterwards_does_not_matter(how: str, copied: Path) -> None:
    network = Network(copied)
    if how == "deleted":
        copied.unlink()
    else:
        copied.write_bytes(b"" if how == "emptied" else bytes(copied.stat().st_size))
    for threads in (1, 2):  # a second thread has a machine of its own
        with ThreadPoolExecutor(threads) as pool:
            assert all(np.array_equal(found[0], X + 1) for found in pool.map(network.run, [[X]] * 8))


@pytest.mark.parametrize("lacks", ["files in memory", "/proc"])
def test_a_system_that_lacks_something_loads_from_a_temporary_file(
    lacks: str, copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_words: object) -> int:
        raise PermissionError("vm.memfd_noexec is 2")

    if lacks == "/proc":
        monkeypatch.setattr(executable, "_path_of", lambda descriptor: f"/no/proc/{descriptor}")
    else:
        monkeypatch.setattr(os, "memfd_create", refuse)
    assert np.array_equal(Network(copied).run([X])[0], X + 1)


def test_a_descriptor_that_is_used_again_is_another_library(path: Path, weighted: Path, tmp_path: Path) -> None:
    """The loader knows libraries by the paths under which it has opened them."""
    for number in range(9):
        (tmp_path / f"{number}.json").write_text(path.with_suffix(".json").read_text())
        shutil.copy(path, tmp_path / f"{number}.so")
        assert np.array_equal(Network(tmp_path / f"{number}.so").run([X])[0], X + X)
    assert np.array_equal(Network(weighted).run([X])[0], X + 1)


def test_a_file_that_was_replaced_is_loaded_anew(path: Path, tmp_path: Path) -> None:
    shutil.copy(path, tmp_path / "net.so")
    shutil.copy(path.with_suffix(".json"), tmp_path / "net.json")
    before = Network(tmp_path / "net.so")
    of_two_outputs(tmp_path / "other.so").replace(tmp_path / "net.so")
    (tmp_path / "other.json").replace(tmp_path / "net.json")
    assert len(Network(tmp_path / "net.so").run([X])) == 3
    assert np.array_equal(before.run([X])[0], X + X)


def test_idle_workers_take_no_processor_time(path: Path) -> None:
    """TVM's own setting keeps a worker busy for 0.1 s."""
    program = """
        import sys, threading, time
        import numpy as np
        import autosched_runtime
        network = autosched_runtime.load(sys.argv[1], threads=2)
        network.run([np.arange(64, dtype="float32")])
        before = time.process_time()
        threading.Event().wait(1.0)
        print(time.process_time() - before)
    """
    assert float(elsewhere(program, str(path))) < 0.05


ARRAYS: dict[str, Callable[[], Any]] = {
    "an array": lambda: X,
    "a part of another at an odd address": lambda: np.frombuffer(b"\0" + X.tobytes(), np.uint8)[1:].view("float32"),
    "every second number": lambda: np.repeat(X, 2)[::2],
    "in reverse": lambda: X[::-1].copy()[::-1],
    "read-only": lambda: np.broadcast_to(X, (64,)),
    "a subclass": lambda: X.view(np.memmap),
    "what can become an array": lambda: memoryview(X.tobytes()).cast("f"),
    "a list of numbers": lambda: X.tolist(),
    "a tuple of whole numbers": lambda: tuple(map(int, X)),
}


@pytest.mark.parametrize("make", ARRAYS.values(), ids=ARRAYS)
def test_any_array_of_the_right_shape_and_type_is_read(make: Callable[[], Any], network: Network) -> None:
    for given in ([make()], {"x": make()}):
        assert np.array_equal(network.run(given)[0], X + X)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "'x' is missing; the module wants: 'x' \\(float32 64\\)"),
        ({"y": X}, "no input 'y'; its inputs are: 'x'"),
        ({"x": X, "y": X}, "no input 'y'"),
        ([], "0 inputs given, 1 wanted"),
        ([X, X], "2 inputs given, 1 wanted"),
        ([X.astype("float64")], r"given as float64 64; convert it, for example: x.astype\('float32'\)"),
        ([X.astype(">f4")], r"given as >f4 64; convert it"),
        ([X.astype("complex64")], "given as complex64"),
        ([X.reshape(8, 8)], r"given as float32 8x8; convert it.*reshape\(\(64,\)\)"),
        ([X[:5]], "it takes 64 numbers, and these are 5"),
        ([X[:0]], "these are 0"),
        ([np.float32(1)], "given as float32 scalar"),
        ([None], "given as object"),
        ([["a", "b"]], "given as <U1"),
        ([[[1, 2], [3]]], "given as no array"),
        ([[1j] * 64], "given as complex128"),
    ],
)
def test_other_inputs_are_refused_with_what_is_wanted(given: Any, words: str, network: Network) -> None:
    with pytest.raises(InvalidInput, match=words):
        network.run(given)


def test_numbers_that_are_not_finite_are_numbers(network: Network) -> None:
    given = X.copy()
    given[:3] = np.nan, np.inf, -np.inf
    assert np.array_equal(network.run([given])[0], given + given, equal_nan=True)


def test_outputs_belong_to_the_caller(network: Network) -> None:
    first = network.run([X])[0]
    first[...] = -1
    second = network.run([X + 1])[0]
    assert np.array_equal(second, X + X + 2)
    assert np.all(first == -1)


def test_several_outputs_of_several_types_and_shapes(tmp_path: Path) -> None:
    flags, total, same = Network(of_two_outputs(tmp_path / "net.so")).run([X])
    assert (flags.dtype, flags.shape) == (np.dtype(bool), (64,))
    assert np.array_equal(flags, X > 10)
    assert (total.shape, float(total)) == ((), float(X.sum()))
    assert np.array_equal(same, X)


def test_a_relative_path_and_any_of_both_names_find_the_network(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    for name in ("net.so", "net", "net.json", "./net.so"):
        assert np.array_equal(Network(name).run([X])[0], X + X)


def test_a_closed_network_says_so(path: Path) -> None:
    network = Network(path)
    network.run([X])
    network.close()
    with pytest.raises(NetworkError, match=r"net\.so is closed: load it again"):
        network.run([X])


def test_two_networks_at_once_are_different(path: Path, tmp_path: Path) -> None:
    one, other = Network(path), Network(of_two_outputs(tmp_path / "net.so"))
    for _ in range(3):
        assert np.array_equal(one.run([X])[0], X + X)
        assert np.array_equal(other.run([X])[2], X)


@pytest.mark.parametrize(
    ("side", "words"),
    [
        ("", "does not describe a compiled module"),
        ("[]", "does not describe a compiled module"),
        ("{}", "it has no 'name'"),
        ('{"name": "net", "inputs": [{"name": "x"}], "outputs": [], "target": {}}', "it has no 'shape'"),
        ('{"name": "net", "inputs": 3, "outputs": [], "target": {}}', "does not describe a compiled module"),
    ],
)
def test_a_side_file_that_is_none_is_refused(side: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "net.json").write_text(side)
    with pytest.raises(NetworkError, match=words):
        described(tmp_path / "net.json")


def test_a_side_file_of_another_network_is_told_at_the_first_inference(path: Path, tmp_path: Path) -> None:
    (tmp_path / "net.so").write_bytes(path.read_bytes())
    side = json.loads(path.with_suffix(".json").read_text())
    side["outputs"][0]["shape"] = [8, 8]
    (tmp_path / "net.json").write_text(json.dumps(side))
    with pytest.raises(NetworkError, match=r"its \.json belongs to another"):
        Network(tmp_path / "net.so").run([X])


def test_a_library_that_is_no_network_is_refused(path: Path, tmp_path: Path) -> None:
    for number, content in enumerate((b"no library", b"", Path(_core.__file__).read_bytes())):
        (tmp_path / f"{number}.json").write_text(path.with_suffix(".json").read_text())
        (tmp_path / f"{number}.so").write_bytes(content)
        with pytest.raises(NetworkError, match=r"cannot be loaded: .*It was compiled with unknown versions"):
            Network(tmp_path / f"{number}.so")


@pytest.mark.parametrize(("number", "name"), [(40, "arm"), (183, "aarch64"), (62, "x86_64"), (258, "another kind")])
def test_a_library_for_another_cpu_is_refused(number: int, name: str, path: Path, tmp_path: Path) -> None:
    if name == os.uname().machine:
        return
    library = bytearray(path.read_bytes())
    library[18:20] = number.to_bytes(2, "little")
    (tmp_path / "net.so").write_bytes(library)
    (tmp_path / "net.json").write_text(path.with_suffix(".json").read_text())
    with pytest.raises(NetworkError, match=rf"was compiled for .*{name}|cannot be loaded"):
        Network(tmp_path / "net.so")


def test_a_side_file_of_a_newer_version_is_refused(path: Path, tmp_path: Path) -> None:
    side = json.loads(path.with_suffix(".json").read_text()) | {"format": 3}
    (tmp_path / "net.json").write_text(json.dumps(side))
    with pytest.raises(NetworkError, match=r"has format 3, and this runtime reads 2: .*Update autosched-runtime"):
        described(tmp_path / "net.json")


def test_names_of_any_bytes_are_loaded(path: Path, tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff \xc3\xa4 'x"))
    folder.mkdir()
    for suffix in (".so", ".json"):
        (folder / f"net{suffix}").write_bytes(path.with_suffix(suffix).read_bytes())
    assert np.array_equal(Network(folder / "net.so").run([X])[0], X + X)


def test_what_runs_networks_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "OWN", tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(NetworkError, match="install autosched-runtime from its wheel"):
        libraries.found(libraries.FFI)
