from pathlib import Path

import pytest

from autosched.errors import RequestError
from autosched_tvm.compile import toolchain


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    toolchain.linker.cache_clear()
    for name in ("CXX", "CC"):
        monkeypatch.delenv(name, raising=False)


def test_a_missing_compiler_is_reported_with_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RequestError, match="apt-get install gcc"):
        toolchain.linker()


def test_the_compiler_of_the_user_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("ld", "mycxx"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert toolchain.linker()[0] == str(tmp_path / "ld")
    toolchain.linker.cache_clear()
    monkeypatch.setenv("CXX", "mycxx")
    assert toolchain.linker()[0] == str(tmp_path / "mycxx")


def a_program(folder: Path, name: str) -> Path:
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("there", "chosen"),
    [
        (["ld", "gcc", "ld.lld"], "ld.lld"),
        (["ld", "ld.lld-14"], "ld.lld-14"),
        (["ld.lld", "aarch64-linux-gnu-ld"], "aarch64-linux-gnu-ld"),
        (["aarch64-linux-gnu-gcc"], "aarch64-linux-gnu-gcc"),
    ],
)
def test_another_processor_needs_a_linker_for_it(
    there: list[str], chosen: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(toolchain.platform, "machine", lambda: "x86_64")
    for name in there:
        a_program(tmp_path, name)
    for triple in ("aarch64-linux-gnu", "aarch64-unknown-linux-gnu", "arm64-linux-gnu"):
        assert toolchain.linker(triple)[0] == str(tmp_path / chosen)


def test_a_missing_linker_is_reported_with_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(toolchain.platform, "machine", lambda: "x86_64")
    a_program(tmp_path, "ld")
    with pytest.raises(RequestError, match=r"no linker for aarch64-linux-gnu .*apt-get install lld"):
        toolchain.linker("aarch64-linux-gnu")
    for triple in ("", "x86_64-linux-gnu", "x86_64-conda-linux-gnu"):
        assert toolchain.linker(triple)[0] == str(tmp_path / "ld")


def test_a_linker_that_fails_is_quoted(tmp_path: Path) -> None:
    (tmp_path / "bad.o").write_text("no object")
    with pytest.raises(RuntimeError, match="failed:"):
        toolchain.link(str(tmp_path / "out.so"), [str(tmp_path / "bad.o")])


# Packages ---------------------------------------------------------------------------------------------------------


def installed(monkeypatch: pytest.MonkeyPatch, **versions: str) -> None:
    def version(package: str) -> str:
        try:
            return versions[package.replace("-", "_")]
        except KeyError:
            raise toolchain.PackageNotFoundError(package) from None

    monkeypatch.setattr(toolchain, "version", version)


@pytest.mark.parametrize("ffi", ["0.1.14", "0.1.14.post0", "0.1.14.post1"])
def test_the_supported_pair_of_packages_is_accepted(monkeypatch: pytest.MonkeyPatch, ffi: str) -> None:
    installed(monkeypatch, apache_tvm="0.27.0.post1", apache_tvm_ffi=ffi)
    assert "apache-tvm 0.27.0.post1" in toolchain.check_packages()


@pytest.mark.parametrize("ffi", ["0.1.15.post2", "0.1.13", "0.1.140"])
def test_another_ffi_version_is_refused_with_the_supported_pair(monkeypatch: pytest.MonkeyPatch, ffi: str) -> None:
    installed(monkeypatch, apache_tvm="0.27.0.post1", apache_tvm_ffi=ffi)
    with pytest.raises(RequestError, match=f"apache-tvm-ffi {ffi} is installed") as error:
        toolchain.check_packages()
    assert "pip install 'apache-tvm==0.27.*' 'apache-tvm-ffi==0.1.14.*'" in str(error.value)


def test_a_missing_tvm_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch)
    with pytest.raises(RequestError, match="apache-tvm is not installed"):
        toolchain.check_packages()
