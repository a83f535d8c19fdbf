"""`autosched doctor`: checks whether this machine is fit for tuning."""

import asyncio

import click

from autosched.cli.output import colours, data, document, document_option
from autosched.doctor import Finding, examine

MARKS = {"ok": "ok", "warning": " !", "broken": " X"}
COLOURS = {"ok": 32, "warning": 33, "broken": 31}


@click.command()
@click.option("--target", default="", metavar="TARGET", help="Target, or kind of boards, to check the build tools for.")
@document_option
@click.pass_obj
def doctor(host: str | None, target: str, style: str) -> int:
    """Check this machine: TVM, its versions, compiler, cores, disk, load, daemon. Exit code 1: something is broken."""
    findings = asyncio.run(_examine(host, target, told=style == "table"))
    if style == "json":
        document("findings", findings)
    broken = [finding for finding in findings if finding.state == "broken"]
    if style == "table":
        data("")
        data(f" {len(broken)} of these must be mended first." if broken else " All is well. Try:  autosched demo")
    return 1 if broken else 0


async def _examine(host: str | None, target: str, *, told: bool) -> list[Finding]:
    findings = []
    async for finding in examine(host, target):
        findings.append(finding)
        if told:
            data(line(finding))
    return findings


def line(finding: Finding) -> str:
    """A finding, with its fix on a separate line."""
    mark = MARKS[finding.state]
    if colours():
        mark = f"\x1b[{COLOURS[finding.state]}m{mark}\x1b[0m"
    what = finding.what.replace("\n", "\n      ")
    return f" {mark}  {what}" + (f"\n      fix: {finding.fix}" if finding.fix else "")
