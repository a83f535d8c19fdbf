"""`autosched gate`: a check in continuous integration that a network has not become slower."""

import hashlib
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import click
import msgspec

from autosched import api, formatting
from autosched.api import Module, result_folder
from autosched.backend import Timing
from autosched.cli.module import style_option
from autosched.cli.output import data, document, say
from autosched.cli.tune import shape_option, trials_of
from autosched.errors import NotFound, RequestError
from autosched.process import whole_file
from autosched.runtime_errors import in_words
from autosched_runtime.network_file import SUFFIX, opened

GIT_S = 60.0
TURNS = 2
"""How often a network must be found slower to be called so: the intervals of one measurement err in 1 of 20."""


@click.command()
@click.argument("network", type=click.Path(path_type=Path), metavar="MODEL|MODULE|DIR")
@click.option(
    "--against",
    "reference",
    required=True,
    metavar="MODULE|DIR|FILE.asn|REVISION",
    help="The network to compare with: compiled, or the model in a revision of its git repository, as HEAD~1 or main.",
)
@click.option("--bound", type=click.FloatRange(1), default=1.02, show_default=True, help="Ratio that is still as fast.")
@shape_option
@click.option("-t", "--target", default="auto", show_default=True, help="TVM target of a model, as in `tune`.")
@click.option(
    "--trials",
    type=int,
    callback=trials_of,
    default=0,
    show_default=True,
    help="Trials for a model; 0: compile it with the schedules that are known.",
)
@click.option("--device", default="cpu", show_default=True, help="Kind of device to measure on.")
@click.option(
    "--seconds", type=click.FloatRange(0.1, 600), default=10.0, show_default=True, help="Duration of a measurement."
)
@click.option(
    "--save",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Keep the network here if it is not slower.",
)
@style_option
@click.pass_obj
def gate(
    host: str | None, /, network: Path, reference: str, bound: float, seconds: float, device: str, save: Path | None,
    style: str, **words: Any,
) -> int:  # fmt: skip
    """Exit with 1 if a network has become slower.

    Equal object code is equally fast, and nothing is measured. Otherwise both networks run in turns on the same cores,
    and a network is slower if the interval of the ratio lies above the bound, twice.
    """
    with tempfile.TemporaryDirectory(prefix="autosched-gate-") as folder:
        new = _module(network, Path(folder) / "new", host, words)
        old = _reference(reference, network, Path(folder) / "old", host, words)
        if codes(new.path) == codes(old):
            found, slower = [], False
        else:
            found = [_measured(new, old, host, device, seconds)]
            while (slower := _slower(found[-1], bound)) and len(found) < TURNS:
                say("It is slower; measured once more, to be sure")
                found.append(_measured(new, old, host, device, seconds))
        if save is not None and not slower:
            new.save(save)
    if style == "json":
        told = {inputs: msgspec.structs.asdict(one) for inputs, one in (found[-1].items() if found else ())}
        document("gate", {"slower": slower, "equal_code": not found, "measured": len(found), "ratios": told})
    else:
        for line in _lines(found, slower=slower, bound=bound):
            data(line)
    return 1 if slower else 0


def codes(path: Path) -> dict[str, str]:
    """Digest of the code of each network in a file, by its inputs in words; without its weights."""
    with in_words():
        file = opened(path)
    found = {}
    with file.path.open("rb") as content:
        for one in file.networks:
            content.seek(one.library.at if one.library else 0)
            code = content.read(one.library.size if one.library else -1)
            found[one.told_inputs] = hashlib.sha256(code).hexdigest()
    return found


def _module(network: Path, folder: Path, host: str | None, words: dict[str, Any]) -> Module:
    """A compiled network, or the model compiled."""
    if network.is_dir() or network.suffix == result_folder.MODULE:
        return api.load_module(network)
    if network.suffix == SUFFIX:
        raise RequestError(f"{network} is packed: name the folder that it was packed from, or the model")
    say(f"Compiling {network}")
    settings = {"target": words["target"], "trials": words["trials"]}
    return api.load_model(network, words["shapes"]).tune(daemon=host, **settings).compile().save(folder)


def _reference(reference: str, network: Path, folder: Path, host: str | None, words: dict[str, Any]) -> Path:
    """The file of the network to compare with."""
    path = Path(reference)
    if path.suffix == SUFFIX and path.is_file():
        return path
    if path.exists():
        return api.load_module(path).path
    if network.is_dir() or network.suffix == result_folder.MODULE:
        raise NotFound(f"there is no network {reference}. A revision of git is for a model:  autosched gate MODEL.onnx")
    return _module(_of_revision(reference, network, folder), folder, host, words).path


def _of_revision(revision: str, model: Path, folder: Path) -> Path:
    """The model's file in a revision of its repository. Raises NotFound."""
    command = ["git", "-C", str(model.absolute().parent), "show", "--end-of-options", f"{revision}:./{model.name}"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=GIT_S, check=False)
    except OSError as error:
        raise NotFound(f"there is no network {revision}, and git cannot be asked for it: {error.strerror}") from error
    if done.returncode != 0:
        why = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise NotFound(f"there is neither a network {revision} nor a revision of {model.name}: {' '.join(why)}")
    folder.mkdir()
    return whole_file.write(folder / model.name, done.stdout)


def _measured(new: Module, old: Path, host: str | None, device: str, seconds: float) -> dict[str, Timing]:
    return new.compare(old, daemon=host, device=device, budget_s=seconds, told=say)


def _slower(found: dict[str, Timing], bound: float) -> bool:
    return any(ratio.low_s > bound for ratio in found.values())


def _lines(found: list[dict[str, Timing]], *, slower: bool, bound: float) -> list[str]:
    if not found:
        return [" as fast: the code is equal, and nothing was measured"]
    verdict = f" SLOWER than allowed ({bound:g}), in each of {len(found)} measurements" if slower else " not slower"
    rounds = [
        f"   {ratio.median_s:.3f} of the time  [{ratio.low_s:.3f}, {ratio.high_s:.3f}]"
        f"  {formatting.count(len(ratio.samples_s), 'round')}  {inputs}"
        for inputs, ratio in found[-1].items()
    ]
    return [verdict, *rounds]
