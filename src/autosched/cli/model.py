"""`autosched model check`: can this network be tuned, and what has to be done first."""

import asyncio
from pathlib import Path
from typing import Any

import click

from autosched import api, children
from autosched.cli.outcome import shown
from autosched.cli.output import data, document
from autosched.cli.tune import shape_option

CHECK_S = 600.0


@click.group()
def model() -> None:
    """Look at ONNX files."""


@model.command()
@click.argument("path", type=click.Path(path_type=Path), metavar="MODEL.onnx")
@shape_option
@click.option("-o", "--format", "style", type=click.Choice(("table", "json")), default="table", help="How to print.")
def check(path: Path, shapes: dict[str, tuple[int, ...]], style: str) -> int:
    """Import a network in a child process and say what can be tuned, or which operator stands in the way."""
    net = api.load_model(path, shapes)
    words = [str(net.path)]
    for name, shape in shapes.items():
        words += ["--shape", f"{name}={','.join(map(str, shape))}"]
    answer = asyncio.run(children.ask("autosched.tvm.check", words, timeout_s=CHECK_S))
    if style == "json":
        document("model", answer)
    else:
        for line in tell(net.path, answer):
            data(line)
    return 0 if answer.get("ok") else 1


def tell(path: Path, answer: dict[str, Any]) -> list[str]:
    """The answer of the child in lines."""
    return [str(answer), shown(path)]
