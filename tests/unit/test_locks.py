"""Packages are installed by their hashes: the locks agree with the constraints, the extras and each other."""

import json
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import autosched

ROOT = Path(__file__).parents[2]
LOCKS = {"runtime": ("tvm", "onnxruntime", "tui"), "development": ("tvm", "onnxruntime", "tui", "dev")}
"""Extras by the lock that has their packages."""


def locked(name: str) -> dict[Requirement, list[str]]:
    """Returns the hashes of each requirement of a lock."""
    text = (ROOT / f"etc/locks/{name}.txt").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {
        Requirement(line.partition(" --hash")[0].strip()): re.findall(r"--hash=sha256:([0-9a-f]{64})(?![^\s])", line)
        for line in lines
    }


@pytest.mark.parametrize("name", LOCKS)
def test_each_package_has_one_version_and_its_hashes(name: str) -> None:
    found = locked(name)
    assert len(found) > 40
    for requirement, hashes in found.items():
        assert re.fullmatch(r"==[^,*]+", str(requirement.specifier)), requirement
        assert hashes, requirement


@pytest.mark.parametrize("name", LOCKS)
def test_versions_are_those_of_the_constraints(name: str) -> None:
    lines = (ROOT / "etc/constraints.txt").read_text().splitlines()
    wanted = {
        canonicalize_name(one.name): one for one in map(Requirement, filter(None, (x.split("#")[0] for x in lines)))
    }
    for requirement in locked(name):
        known = wanted.get(canonicalize_name(requirement.name))
        if known is not None and known.marker is None:
            (version,) = requirement.specifier
            assert known.specifier.contains(version.version), f"{requirement}: run make lock"


@pytest.mark.parametrize("name", LOCKS)
def test_all_that_the_extras_name_is_there(name: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = [one for extra in LOCKS[name] for one in project["project"]["optional-dependencies"][extra]]
    named = [*project["project"]["dependencies"], *extras, *project["build-system"]["requires"]]
    versions: dict[str, list[str]] = {}
    for requirement in locked(name):
        (version,) = requirement.specifier
        versions.setdefault(canonicalize_name(requirement.name), []).append(version.version)
    for one in map(Requirement, named):
        there = versions.get(canonicalize_name(one.name), [])
        assert any(one.specifier.contains(version) for version in there), f"{one}: run make lock"


def test_what_runs_is_part_of_what_is_developed() -> None:
    runtime, development = ({(one.name, str(one.specifier)) for one in locked(name)} for name in LOCKS)
    assert runtime <= development


def test_the_list_of_packages_is_that_of_the_lock() -> None:
    listed = json.loads((ROOT / "etc/locks/autosched.cdx.json").read_text())
    packages = {(canonicalize_name(one["name"]), one["version"]) for one in listed["components"]}
    pinned = set()
    for requirement in locked("runtime"):
        (version,) = requirement.specifier
        pinned.add((canonicalize_name(requirement.name), version.version))
    assert packages - {("autosched", autosched.__version__)} <= pinned
    for name in ("apache-tvm", "numpy", "aiohttp", "hatchling"):
        assert any(package == name for package, _ in packages)
    assert all(one.get("licenses") or one.get("purl") for one in listed["components"])
    assert {one["ref"] for one in listed["dependencies"]} >= {one["bom-ref"] for one in listed["components"]}


def test_the_base_image_is_named_by_its_digest() -> None:
    (base,) = re.findall(r"^FROM (.+)$", (ROOT / "etc/container/Containerfile").read_text(), re.MULTILINE)
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim@sha256:[0-9a-f]{64}", base)


def test_tests_that_the_threat_model_names_are_there() -> None:
    text = (ROOT / "docs/threat-model.md").read_text()
    named = set(re.findall(r"[a-z_/]*test_[a-z_]+\.py", text))
    assert len(named) > 8
    there = {str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")}
    assert not [name for name in named if not any(path.endswith(f"/{name}") or path == name for path in there)]
