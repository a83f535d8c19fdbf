"""`autosched export`: a tuned network, packed for where it runs."""

from pathlib import Path
from typing import Any

import click

from autosched import api, formatting
from autosched.cli.output import data, document, say
from autosched.cli.result_summary import shown
from autosched.export import Form

HINTS = {
    Form.FILE: 'Run it:  autosched_runtime.InferenceSession("{path}"). What it is:  unzip -p {path} card.md',
    Form.WHEEL: "Install it:  pip install {path}",
    Form.FOLDER: "Try it:  python {path}/example.py",
    Form.C: "Try it:  cmake -S {path} -B build && cmake --build build && build/example {path}/*.asn",
    Form.IMAGE: "Build it:  podman build -t NAME {path}",
}


@click.command()
@click.argument("modules", type=click.Path(path_type=Path), metavar="MODULE|DIR...", nargs=-1, required=True)
@click.option(
    "--as",
    "form",
    type=click.Choice([form.value for form in Form]),
    default=Form.FILE.value,
    show_default=True,
    help="One file (.asn), a Python wheel, a folder, a project for C and C++, or a container's folder with a service.",
)
@click.option("--output", type=click.Path(path_type=Path), metavar="PATH", help="Default: beside the module.")
@click.option("--name", default="", help="For a wheel: name of the package. Default: the network's.")
@click.option("--version", default="", metavar="X.Y", help="For a wheel: its version. Default: 1.0.")
@click.option(
    "--pad",
    is_flag=True,
    help="Pad inputs of sizes between those of the networks, if a comparison with the model allows it.",
)
@click.option("--from", "least", type=click.IntRange(1), default=1, show_default=True, help="Least size for --pad.")
@click.option(
    "--model", type=click.Path(path_type=Path), metavar="MODEL.onnx", help="For --pad. Default: searched near them."
)
@click.option("--licence", type=click.Path(path_type=Path), metavar="FILE", help="The licence of the model.")
@click.option(
    "--runtime",
    type=click.Path(path_type=Path),
    metavar="WHEEL",
    help="For an image: the wheel of autosched-runtime that it installs. Default: from the package index.",
)
@click.option(
    "-o", "--format", "style", type=click.Choice(("table", "json")), default="table", help="Output format."
)  # fmt: skip
def export(
    modules: tuple[Path, ...], form: str, output: Path | None, pad: bool, least: int, model: Path | None, style: str,
    **how: Any,
) -> int:  # fmt: skip
    """Pack a tuned network for where it runs. Neither autosched nor a compiler is needed there.

    Networks of one model that were tuned for several CPUs or shapes are packed together: the CPU and the inputs then
    decide which one runs.

    It contains samples and a card: what it is, from what, how it was verified, how fast it is, its limits and licences.
    The same network gives the same bytes.
    """
    kind = Form(form)
    if (how["name"] or how["version"]) and kind is not Form.WHEEL:
        raise click.UsageError("--name and --version are for a wheel: add  --as wheel")
    if how["runtime"] is not None and kind is not Form.IMAGE:
        raise click.UsageError("--runtime is for an image: add  --as image")
    found, *others = [api.load_module(module) for module in modules]
    padding, why = found.padding(others, least=least, model=model) if pad else (None, "")
    path = found.export(kind, output, others=others, padding=padding, **how | {"version": how["version"] or "1.0"})
    if style == "json":
        document("export", {"form": form, "path": str(path)})
        return 0
    size = sum(file.stat().st_size for file in (path, *path.rglob("*")) if file.is_file())
    data(f" {shown(path)}  {formatting.size(size)}")
    if not all(module.has_samples for module in (found, *others)):
        say(
            "It has no samples, so that it cannot be checked where it runs: compile the network again with this version"
        )
    if why:
        say(f"Inputs are not padded: {why}")
    say(HINTS[kind].format(path=shown(path)))
    return 0
