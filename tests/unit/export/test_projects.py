"""A network as a project for C and C++, as a folder, and as a service for a container."""

import io
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tvm")

import autosched_runtime
from autosched.errors import NotFound, RequestError
from autosched.export import Form, export
from autosched_runtime import libraries
from deadlines import DEADLINE_S
from unit.autosched_runtime.small_networks import X
from unit.export.packed import tuned

pytestmark = pytest.mark.tvm
BUILD_TOOLS = ("cmake", "gcc", "g++")
WRONG_CALLS = r"""
#include "autosched_network.h"
#include <stdio.h>
#include <string.h>

static int wants(int status, const char *words) {
    if (status == 0 || strstr(as_message(), words) == NULL) {
        printf("not: %s, but: %s\n", words, status == 0 ? "no error" : as_message());
        return 1;
    }
    return 0;
}

int main(int count, char **words) {
    as_network *network = NULL, *none = NULL;
    as_session *session = NULL, *other = NULL;
    static char unaligned[64 * 4 + 1], memory[64 * 4];
    int wrong = 0;
    if (count != 2 || as_network_open(words[1], &network) != 0 || as_session_new(network, 2, &session) != 0) {
        printf("%s\n", as_message());
        return 1;
    }
    as_array input = {unaligned + 1, 64 * 4}, output = {memory, 64 * 4}, small = {memory, 64}, null = {NULL, 64 * 4};
    as_array two[] = {input, input};
    wrong += wants(as_network_open("/none.asn", &none), "/none.asn cannot be opened: No such file");
    wrong += wants(as_network_open("/", &none), "cannot be read: Is a directory");
    wrong += wants(as_network_open("/dev/null", &none), "is cut off");
    wrong += wants(as_network_open("/proc/self/exe", &none), "is no network");
    wrong += wants(as_network_open_shape(words[1], 1, &none), "has no more networks for other shapes");
    wrong += none != NULL;
    wrong += wants(as_session_new(network, -1, &other), "threads is -1");
    wrong += wants(as_session_new(network, 9999, &other), "threads is 9999");
    wrong += wants(as_run(session, &input, 0, &output, 1), "0 inputs given, 1 wanted");
    wrong += wants(as_run(session, two, 2, &output, 1), "2 inputs given, 1 wanted");
    wrong += wants(as_run(session, &input, 1, &output, 0), "0 outputs given, 1 wanted");
    wrong += wants(as_run(session, &small, 1, &output, 1), "input 0 (x, float32) has 256 bytes, and 64 were given");
    wrong += wants(as_run(session, &input, 1, &small, 1), "output 0 (x, float32) has 256 bytes, and 64 were given");
    wrong += wants(as_run(session, &null, 1, &output, 1), "and 0 were given");
    wrong += as_input(network, 1) != NULL || as_output(network, 1) != NULL;
    wrong += strcmp(as_name(network), "net") != 0 || as_cores(network) != 1 || as_input(network, 0)->shape[0] != 64;
    for (int n = 0; n < 3; n++) {
        float first;
        wrong += as_run(session, &input, 1, &output, 1) != 0;
        memcpy(&first, memory, sizeof first);
        wrong += first != 1.0f;
    }
    as_session_free(session);
    as_session_free(NULL);
    as_network_close(network);
    as_network_close(NULL);
    return wrong;
}
"""


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tuned(tmp_path_factory.mktemp("net-tuned"))


@pytest.fixture(scope="module")
def project(module: Path) -> Path:
    """The project, built."""
    if missing := [tool for tool in BUILD_TOOLS if shutil.which(tool) is None]:
        pytest.skip(f"{missing[0]} is not installed")
    folder = export([module], Form.C)
    (folder / "calls.c").write_text(WRONG_CALLS)
    with (folder / "CMakeLists.txt").open("a") as file:
        file.write("\nadd_executable(calls calls.c)\ntarget_link_libraries(calls PRIVATE autosched_network)\n")
    strict = "-DCMAKE_C_FLAGS=-Werror -fsanitize=undefined -fno-sanitize-recover", "-DCMAKE_CXX_FLAGS=-Werror"
    run("cmake", "-S", folder, "-B", folder / "build", *strict)
    run("cmake", "--build", folder / "build", "--parallel")
    return folder


def run(*words: str | Path, status: int = 0) -> str:
    """Runs a program; returns what it says."""
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_c_program_gives_the_networks_outputs(project: Path, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(X.tobytes())
    said = run(project / "build/example", project / "net.asn", tmp_path / "x", "--", tmp_path / "y")
    assert "net: " in said
    assert np.array_equal(np.frombuffer((tmp_path / "y").read_bytes(), "float32"), X + 1)


def test_sessions_in_threads_of_a_cpp_program_agree(project: Path) -> None:
    assert "net: 4 threads agree" in run(project / "build/example_cpp", project / "net.asn")


def test_wrong_calls_are_errors_in_words(project: Path) -> None:
    assert run(project / "build/calls", project / "net.asn") == ""


def test_an_installed_project_lies_in_one_folder(project: Path, tmp_path: Path) -> None:
    run("cmake", "--install", project / "build", "--prefix", tmp_path)
    assert {path.name for path in (tmp_path / "lib").iterdir()} == {
        "libautosched_network.so", "libtvm_ffi.so", "libtvm_runtime.so", "libtvm_runtime_extra.so",
    }  # fmt: skip
    shutil.copy(project / "example.c", tmp_path)
    flags = "-I", tmp_path / "include", "-L", tmp_path / "lib", f"-Wl,-rpath,{tmp_path}/lib", "-lautosched_network"
    links = f"-Wl,-rpath-link,{tmp_path}/lib"
    run("gcc", tmp_path / "example.c", *flags, links, "-o", tmp_path / "example")
    assert "net: " in run(tmp_path / "example", project / "net.asn")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda content: content[: len(content) // 2], "is cut off"),
        (lambda content: content[:4500] + b"?" + content[4501:], "manifest.json is not what was written"),
        (lambda content: content[:30_000] + b"?" + content[30_001:], "is damaged"),
        (lambda content: b"", "is cut off"),
        (lambda content: b"x" * 5000, "is no network"),
    ],
)
def test_files_that_are_wrong_are_errors_in_c_too(change: object, words: str, project: Path, tmp_path: Path) -> None:
    (tmp_path / "net.asn").write_bytes(change((project / "net.asn").read_bytes()))  # type: ignore[operator]
    assert words in run(project / "build/example", tmp_path / "net.asn", status=1)


def test_a_network_for_another_cpu_is_refused_in_c(project: Path, tmp_path: Path) -> None:
    import msgspec

    from unit.autosched_runtime.small_networks import of_weights

    path = of_weights(tmp_path / "net.so", 1)
    side = msgspec.json.decode(path.with_suffix(".json").read_bytes()) | {"features": ["amx-fp16", "avx10"]}
    path.with_suffix(".json").write_bytes(msgspec.json.encode(side))
    said = run(project / "build/example", export([path], Form.FILE), status=1)
    if os.uname().machine == "x86_64":
        assert "was compiled for a CPU with amx_fp16" in said


def test_c_needs_tvms_libraries_of_its_machine(module: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "installed", lambda _name: None)
    with pytest.raises(RequestError, match="TVM is not installed"):
        export([module], Form.C, tmp_path / "c")
    shutil.copy(module, tmp_path)
    side = json.loads(module.with_suffix(".json").read_text())
    side["target"]["mtriple"] = "riscv64-linux-gnu"
    (tmp_path / "net.json").write_text(json.dumps(side))
    with pytest.raises(RequestError, match="net is for riscv64, and TVM's libraries here are for"):
        export([tmp_path / "net.so"], Form.C, tmp_path / "c")


def test_a_folder_runs_its_example(module: Path) -> None:
    folder = export([module], Form.FOLDER)
    assert run(sys.executable, folder / "example.py").count("as verified") == 2
    assert "autosched-runtime" in (folder / "requirements.txt").read_text()
    assert np.array_equal(autosched_runtime.load(folder / "net.so").run([X])[0], X + 1)


def test_a_folder_that_is_not_ours_is_kept(module: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    assert export([module], Form.FOLDER, tmp_path / "mine").is_dir()
    (tmp_path / "mine/more").write_text("from before")
    export([module], Form.FOLDER, tmp_path / "mine")
    assert not (tmp_path / "mine/more").exists()
    (tmp_path / "mine/card.md").unlink()
    with pytest.raises(RequestError, match="is there, and no exported network"):
        export([module], Form.FOLDER, tmp_path / "mine")
    assert not list(tmp_path.glob(".autosched-*"))


@pytest.fixture(scope="module")
def service(module: Path) -> Iterator[str]:
    """The address of the service of an image."""
    folder = export([module], Form.IMAGE)
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, folder / "serve.py"], env={**os.environ, "PORT": str(port)})
    until = time.monotonic() + DEADLINE_S
    try:
        while time.monotonic() < until:
            healthy = [sys.executable, folder / "serve.py", "--healthy"]
            asked = subprocess.run(
                healthy, env={**os.environ, "PORT": str(port)}, capture_output=True, timeout=DEADLINE_S, check=False
            )
            if asked.returncode == 0:
                break
        yield f"http://localhost:{port}"
    finally:
        process.kill()
        process.wait()


def post(url: str, content: bytes) -> bytes:
    with urllib.request.urlopen(urllib.request.Request(url, content, method="POST"), timeout=DEADLINE_S) as answer:
        return bytes(answer.read())


def test_the_service_of_an_image_answers(service: str) -> None:
    given = io.BytesIO()
    np.savez(given, x=X)
    with np.load(io.BytesIO(post(f"{service}/run", given.getvalue()))) as found:
        assert np.array_equal(found["x"], X + 1)
    with urllib.request.urlopen(f"{service}/health", timeout=DEADLINE_S) as answer:
        assert answer.read() == b"fine\n"


def test_the_service_refuses_what_does_not_fit(service: str) -> None:
    wrong = io.BytesIO()
    np.savez(wrong, x=X.astype("float64"))
    for path, content, status in (
        ("run", wrong.getvalue(), 400), ("run", b"", 400), ("run", b"no archive", 400), ("other", b"", 404),
    ):  # fmt: skip
        with pytest.raises(urllib.error.HTTPError) as told:
            post(f"{service}/{path}", content)
        assert told.value.code == status
        with told.value as answer:
            assert content != wrong.getvalue() or b"convert it" in answer.read()


def test_an_image_installs_the_given_wheel(module: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "autosched_runtime-1.1.0-py3-none-any.whl"
    wheel.write_bytes(b"a wheel")
    folder = export([module], Form.IMAGE, tmp_path / "image", runtime=wheel)
    text = (folder / "Containerfile").read_text()
    assert f"COPY requirements.txt {wheel.name} ./" in text
    assert "COPY net.asn serve.py ./" in text
    assert f"./{wheel.name}" in (folder / "requirements.txt").read_text()
    assert (folder / wheel.name).read_bytes() == b"a wheel"
    assert (folder / "net.asn").is_file()
    with pytest.raises(NotFound, match="make dist"):
        export([module], Form.IMAGE, tmp_path / "image", runtime=tmp_path / "none.whl")
