"""`autosched model`: whether a network can be tuned, what must be done first, and the part of it that can."""

import asyncio
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from autosched import api, formatting
from autosched.api import tvm_programs
from autosched.api.whole_models import whole
from autosched.cli.command_group import Group
from autosched.cli.output import data, document, document_option, say
from autosched.cli.tune import shape_option

CHECK_S = 600.0
CUT_S = 1_200.0
TASKS_SHOWN = 8
OPERATORS_SHOWN = 6


@click.group(cls=Group)
def model() -> None:
    """Check models: ONNX and TFLite files, PyTorch programs."""


@model.command()
@click.argument("path", type=click.Path(path_type=Path), metavar="MODEL")
@shape_option
@click.option("-t", "--target", default="auto", show_default=True, help='TVM target: auto, "llvm -mcpu=...", JSON.')
@click.option(
    "--inputs",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE.npz",
    help="Samples of inputs, if generated ones are not valid.",
)
@click.option("--unverified", is_flag=True, help="Accept a network that no other engine can run.")
@document_option
def check(
    path: Path, shapes: dict[str, tuple[int, ...]], target: str, inputs: Path | None, unverified: bool, style: str
) -> None:
    """Import a network in a child process and list its tasks, or the operator that prevents the import."""
    net = api.load_model(path, shapes)
    words = ["--target", target, *_shape_words(shapes), *([] if inputs is None else ["--inputs", str(inputs)])]
    words += ["--unverified"] if unverified else []
    answer = asyncio.run(_asked(tvm_programs.MODEL_CHECK, net.path, words, timeout_s=CHECK_S))
    if style == "json":
        return document("model", answer)
    for line in tell(path, answer):
        data(line)
    fixed = "".join(f" --shape {name}={','.join(map(str, shape))}" for name, shape in shapes.items())
    say(f" Try:  autosched tune {typed(path)}{fixed}")


@model.command()
@click.argument("path", type=click.Path(path_type=Path), metavar="MODEL")
@click.option("--at", "names", multiple=True, metavar="TENSOR", help="Cut behind this value (several: repeat it).")
@shape_option
@click.option("-t", "--target", default="auto", show_default=True, help='TVM target: auto, "llvm -mcpu=...", JSON.')
@click.option("--out-dir", type=click.Path(path_type=Path, file_okay=False), help="Folder of both files.")
@document_option
def cut(
    path: Path,
    names: tuple[str, ...],
    shapes: dict[str, tuple[int, ...]],
    target: str,
    out_dir: Path | None,
    style: str,
) -> None:
    """Write the part of an ONNX network that can be tuned, and the rest, which ONNX Runtime runs.

    Without --at, the network is cut before the operators for which it is refused, such as NonMaxSuppression.
    """
    net = api.load_model(path, shapes)
    folder = out_dir or path.parent
    folder.mkdir(parents=True, exist_ok=True)
    head, rest = (folder / f"{path.stem}.{part}.onnx" for part in ("head", "rest"))
    words = [str(head), str(rest), "--target", target, *_shape_words(shapes), *(f"--at={name}" for name in names)]
    answer = asyncio.run(_asked(tvm_programs.MODEL_CUT, net.path, words, timeout_s=CUT_S))
    answer["head"]["path"], answer["rest"]["path"] = str(head), str(rest)
    if style == "json":
        return document("cut", answer)
    for line in tell_cut(path, answer):
        data(line)
    say(f" Try:  autosched tune {typed(head)}")


def _shape_words(shapes: dict[str, tuple[int, ...]]) -> list[str]:
    return [f"--shape={name}={','.join(map(str, shape))}" for name, shape in shapes.items()]


async def _asked(program: str, path: Path, words: list[str], *, timeout_s: float) -> dict[str, Any]:
    """The answer of a program about a model with all its weights."""
    async with whole(path) as file:
        return await tvm_programs.ask(program, [str(file), *words], timeout_s=timeout_s)


def typed(path: Path) -> str:
    """A path as a word of a command, which no shell changes and no parser takes for an option."""
    return shlex.quote(f"./{path}" if str(path).startswith("-") else str(path))


def tell_cut(path: Path, answer: dict[str, Any]) -> Iterator[str]:
    """The parts of a network, line by line, and how to run them one after the other."""
    if answer["why"]:
        yield f" {path.name} as a whole: {answer['why']}"
    for part, use in (("head", "to tune"), ("rest", "for ONNX Runtime")):
        one = answer[part]
        operators = ", ".join(list(one["operators"])[:OPERATORS_SHOWN])
        more = " …" if len(one["operators"]) > OPERATORS_SHOWN else ""
        yield f" ok  {Path(one['path']).name}, {use}: {formatting.count(one['nodes'], 'node')} ({operators}{more})"
        yield f"       takes {', '.join(one['inputs'])}; gives {', '.join(one['outputs'])}"
    said = {
        True: " ok  both parts give what the whole network gives (compared in ONNX Runtime with one random input)",
        False: " !!  the two parts give something else than the whole network (compared in ONNX Runtime)",
        None: " --  not compared with the whole network: ONNX Runtime is not installed, or cannot run it",
    }
    yield said[answer["equal"]]
    yield " To run both, with the module that `autosched tune` makes of the first:"
    yield "       head = autosched.load_module(MODULE)"
    yield f"       rest = onnxruntime.InferenceSession({Path(answer['rest']['path']).name!r})"
    yield f"       found = dict(zip({answer['head']['outputs']}, head.run(inputs)))"
    yield "       names = [value.name for value in rest.get_inputs()]"
    yield "       outputs = rest.run(None, {name: (inputs | found)[name] for name in names})"


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
