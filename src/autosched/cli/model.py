"""`autosched model check`: whether a network can be tuned, and what must be done first."""

import asyncio
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from autosched import api, formatting
from autosched.api import tvm_programs
from autosched.cli.command_group import Group
from autosched.cli.output import data, document, document_option, say
from autosched.cli.tune import shape_option

CHECK_S = 600.0
TASKS_SHOWN = 8


@click.group(cls=Group)
def model() -> None:
    """Check models: ONNX and TFLite files, PyTorch programs."""


@model.command()
@click.argument("path", type=click.Path(path_type=Path), metavar="MODEL")
@shape_option
@click.option("-t", "--target", default="auto", show_default=True, help='TVM target: auto, "llvm -mcpu=...", JSON.')
@document_option
def check(path: Path, shapes: dict[str, tuple[int, ...]], target: str, style: str) -> None:
    """Import a network in a child process and list its tasks, or the operator that prevents the import."""
    net = api.load_model(path, shapes)
    words = [str(net.path), "--target", target]
    for name, shape in shapes.items():
        words += ["--shape", f"{name}={','.join(map(str, shape))}"]
    answer = asyncio.run(tvm_programs.ask(tvm_programs.MODEL_CHECK, words, timeout_s=CHECK_S))
    if style == "json":
        return document("model", answer)
    for line in tell(path, answer):
        data(line)
    fixed = "".join(f" --shape {name}={','.join(map(str, shape))}" for name, shape in shapes.items())
    name = f"./{path}" if str(path).startswith("-") else str(path)  # otherwise it would be parsed as an option
    say(f" Try:  autosched tune {shlex.quote(name)}{fixed}")


def tell(path: Path, answer: dict[str, Any]) -> Iterator[str]:
    """The answer of the child, line by line."""
    yield f" {path.name}  {answer['format']}, {formatting.count(answer['nodes_before'], 'node')}"
    for tensor in answer["inputs"]:
        yield f" ok  input {tensor['name']}: {tensor['dtype']} {'x'.join(map(str, tensor['shape'])) or 'scalar'}"
    for fix in answer["fixes"]:
        yield f" ok  before tuning: {fix}"
    tasks = answer["tasks"]
    yield f" ok  {formatting.count(len(tasks), 'task')} to tune, {formatting.count(answer['uses'], 'use')}"
    whole = sum(task["flops"] * task["uses"] for task in tasks)
    for task in sorted(tasks, key=lambda t: -t["flops"] * t["uses"])[:TASKS_SHOWN]:
        part = formatting.share(task["flops"] * task["uses"], whole)
        yield f"      {part:>5} of the arithmetic  {task['shape'] or task['name']}"
    if len(tasks) > TASKS_SHOWN:
        yield f"      … {len(tasks) - TASKS_SHOWN} more: -o json"
    if answer["skipped"]:
        names = ", ".join(dict.fromkeys(skipped["name"] for skipped in answer["skipped"]))
        yield f" ok  {len(answer['skipped'])} not tuned: {names}"
