"""Commands on a compiled module: run, evaluate."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from autosched import api, config, formatting
from autosched.api import tvm_programs
from autosched.api.compiled_module import Module
from autosched.backend import Evaluation
from autosched.cli.output import data, document, say
from autosched.cli.result_summary import evaluation, shown
from autosched.cli.tune import tolerance_option
from autosched.config import Config
from autosched.model import HOST_POOL
from autosched.report.evaluation_summary import interval
from autosched.text import tables

RUN_S = 600.0

module_argument = click.argument("module", type=click.Path(path_type=Path), metavar="MODULE")
inputs_option = click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="[NAME=]FILE.npy",
    help="Input as a NumPy file. Default: random.",
)
samples_option = click.option(
    "--inputs",
    "samples",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE.npz",
    help="Samples of all inputs, by name. The first one is measured, all are checked.",
)
style_option = click.option(
    "-o", "--format", "style", type=click.Choice(("table", "json")), default="table", help="Output format."
)


@click.command()
@module_argument
@inputs_option
@samples_option
@tolerance_option
@click.option("--output", type=click.Path(path_type=Path), metavar="DIR", help="Write each output to DIR/NAME.npy.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Random seed of generated inputs.")
@click.option(
    "--check", is_flag=True, help="Compare outputs with ONNX Runtime's on the model, and measure both on a device."
)
@click.option(
    "--model",
    type=click.Path(path_type=Path),
    metavar="MODEL.onnx",
    help="For --check: the module's model. Default: searched near the module, here, and in the daemon.",
)
@click.option("--device", default="cpu", show_default=True, help="For --check: kind of device to measure on.")
@style_option
@click.pass_obj
def run(
    host: str | None, module: Path, inputs: tuple[str, ...], samples: Path | None, tolerance: float | None,
    output: Path | None, seed: int, check: bool, model: Path | None, device: str, style: str,
) -> int:  # fmt: skip
    """Run a compiled network once, in a separate process, with as many threads as the cores that it was tuned for.

    The process stays off the devices' cores if enough others are left.

    With --check it runs on a device, waits while a daemon uses that, and exits with 1 if outputs differ.
    """
    found = api.load_module(module)
    if not check:
        if model is not None:
            raise click.UsageError("--model is for --check: write  autosched run MODULE --check --model MODEL.onnx")
        if tolerance is not None:
            raise click.UsageError("--tolerance is for --check: write  autosched run MODULE --check --tolerance SHARE")
        _run(found, [*(word for text in inputs for word in ("--input", text)), *_samples(samples)], output, seed, style)
        return 0
    if output is not None:
        raise click.UsageError("--check writes no outputs: give --check or --output DIR, one after the other")
    measured = found.check(
        model=model, daemon=host, device=device, inputs=inputs, samples=samples, tolerance=tolerance, seed=seed,
        told=say,
    )  # fmt: skip
    return _checked(found, measured, style)


def _checked(found: Module, measured: Evaluation, style: str) -> int:
    """Print an evaluation; returns the exit status."""
    if style == "json":
        document("evaluation", measured)
    else:
        data(f" {found.path.name}  {formatting.size(found.path.stat().st_size)}")
        for line in evaluation(measured):
            data(line)
    return 0 if measured.outputs_equal else 1


def _samples(path: Path | None) -> list[str]:
    return [] if path is None else ["--inputs", str(path)]


def _run(found: Module, inputs: Sequence[str], output: Path | None, seed: int, style: str) -> None:
    """Run the module. `inputs`: the child's options for inputs; empty: random ones."""
    words = ["run", str(found.path), "--seed", str(seed), *inputs]
    if output is not None:
        words += ["--output", str(output)]
    words += tvm_programs.on_gpu(found.gpu())
    pools = config.resources(Config()).pools
    cores = sorted({core for pool in pools if pool.name == HOST_POOL for unit in pool.units for core in unit.cores})
    if len(cores) >= found.cores:  # otherwise it needs the cores of the devices, too
        words += ["--cores", ",".join(map(str, cores))]
    answer = asyncio.run(tvm_programs.ask(tvm_programs.MODULE_COMMAND, words, timeout_s=RUN_S))
    if style == "json":
        return document("run", {"seconds": answer["seconds"], "outputs": answer["outputs"]})
    if not inputs:
        say(f"made-up inputs, seed {seed}; your own:  --input x.npy")
    for tensor in answer["outputs"]:
        shape = "x".join(map(str, tensor["shape"])) or "scalar"
        first = ", ".join(f"{value:.6g}" for value in tensor["first"])
        data(f" {tensor['name']}  {tensor['dtype']} {shape}  {first}{', …' if len(tensor['first']) == 5 else ''}")
        if tensor["file"]:
            data(f"   written to {tensor['file']}")
    if not found.verified:
        say("NOT VERIFIED: no other engine could check the outputs of this module (--unverified)")
    took = formatting.latency(answer["seconds"])
    say(f"took {took}, the first time. To measure and check it:  autosched run {shown(found.path)} --check")


@click.command()
@module_argument
@inputs_option
@samples_option
@click.option(
    "--tolerance", type=click.FloatRange(0, 1, min_open=True), metavar="SHARE",
    help="Check the outputs too, as `run --check`. Maximum difference, as a share of each output's largest value.",
)  # fmt: skip
@click.option("--device", default="cpu", show_default=True, help="Kind of device to measure on.")
@click.option(
    "--seconds",
    type=click.FloatRange(0.1, 600),
    default=5.0,
    show_default=True,
    help="Duration of the measurement in seconds.",
)
@click.option("--operators", is_flag=True, help="Show the time of each operator, measured within the network.")
@style_option
@click.pass_obj
def evaluate(
    host: str | None, module: Path, inputs: tuple[str, ...], samples: Path | None, tolerance: float | None,
    device: str, seconds: float, operators: bool, style: str,
) -> int:  # fmt: skip
    """Measure a compiled network on a device's cores; waits while a daemon uses the device."""
    found = api.load_module(module)
    given: dict[str, Any] = {"daemon": host, "device": device, "budget_s": seconds, "inputs": inputs, "told": say}
    if operators:
        times = found.operators(**given)
        if style == "json":
            document("operators", times)
            return 0
        for line in tables.operator_table(times):
            data(line)
        return 0
    if tolerance is not None:
        return _checked(found, found.check(samples=samples, tolerance=tolerance, **given), style)
    timing = found.evaluate(samples=samples, **given)
    if style == "json":
        document("timing", timing)
        return 0
    count = formatting.count(len(timing.samples_s), "sample")
    data(f" {found.path.name}  {formatting.latency(timing.median_s)}  95 % of {interval(timing)}, median of {count}")
    return 0
