from pathlib import Path

import pytest

from autosched.errors import RequestError
from autosched.tvm import toolchain


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    toolchain.linker.cache_clear()
    for name in ("CXX", "CC"):
        monkeypatch.delenv(name, raising=False)


def test_nothing_on_path_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RequestError, match="apt-get install gcc"):
        toolchain.linker()


def test_the_users_compiler_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("ld", "mycxx"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert toolchain.linker()[0] == str(tmp_path / "ld")
    toolchain.linker.cache_clear()
    monkeypatch.setenv("CXX", "mycxx")
    assert toolchain.linker()[0] == str(tmp_path / "mycxx")


def test_a_linker_that_fails_is_quoted(tmp_path: Path) -> None:
    (tmp_path / "bad.o").write_text("no object")
    with pytest.raises(RuntimeError, match="failed:"):
        toolchain.link(str(tmp_path / "out.so"), [str(tmp_path / "bad.o")])
