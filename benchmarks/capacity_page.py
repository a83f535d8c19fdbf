"""The sections of RESULTS.md on how much the daemon can take."""

from typing import Any

PARTS = {
    "paced": "paced",
    "crowded": "crowded: submissions come",
    "overload": "overload: ten times as many come",
    "saturated": "saturated",
}


def transitions(told: dict[str, Any]) -> list[str]:
    """What a durable transition costs, and how many there can be."""
    lines = [
        f"## Durable transitions with {told['clients']:,} clients",
        "",
        "`python benchmarks/transitions.py`: a step ends, that is on disk, and the next one is ordered. From a",
        "client's word that a step has ended to the answer that this is durable, by the clients' clock. The clients",
        "are one process on the same two cores, with whatever else ran there.",
        "",
        "| | transitions/s | processor time each | daemon's share of a core | clients' |"
        " ms to the answer, p50 / p99 | a few bytes reach the disk in, p50 / p99 |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, words in PARTS.items():
        if (part := told.get(name)) is not None:
            ack, disk = part["ack_ms"], part["meanwhile"]["fsync_ms"]
            lines.append(
                f"| {words} | {part['transitions_per_s']:.0f} | {part['daemon_cpu_us']:.0f} us |"
                f" {part['daemon_share_of_a_core']:.2f} | {part['clients_share_of_a_core']:.2f} |"
                f" {ack['p50']:.1f} / {ack['p99']:.1f} | {disk['p50']:.1f} / {disk['p99']:.1f} ms |"
            )
    lines += ["", "Wanted: 150 us each; 5,000/s saturated; p99 of 5 ms and one flush when paced at 1,000/s."]
    if "crowded" in told and "overload" in told:
        ratio = told["overload"]["ack_ms"]["p99"] / told["crowded"]["ack_ms"]["p99"]
        taken = {name: told[name]["submits"]["taken_per_s"] for name in ("crowded", "overload")}
        lines += [
            "",
            f"With {taken['overload']:.0f} instead of {taken['crowded']:.0f} submissions a second running jobs wait"
            f" {ratio:.2f} times as long (p99; bar: 2).",
        ]
    return lines


def floor(told: dict[str, Any]) -> list[str]:
    """What of it nobody can save."""
    lines = [
        f"## Durable transitions with {told['clients']:,} clients: the least that must happen",
        "",
        "`python benchmarks/transitions_floor.py`: the same messages and journal, and nobody who decides anything.",
        "",
        "| | transitions/s | processor time each |",
        "|---|---|---|",
    ]
    for name, words in (("wire", "two messages in, two out"), ("durable", "and a row in the journal")):
        part = told[name]
        lines.append(f"| {words} | {part['transitions_per_s']:.0f} | {part['cpu_us']:.0f} us |")
        if (paced := part.get("paced")) is not None:
            lines.append(f"| {words}, paced | {paced['transitions_per_s']:.0f} | {paced['cpu_us']:.0f} us |")
    return lines


def idle(told: dict[str, Any]) -> list[str]:
    """What connections cost that only stand."""
    lines = [
        f"## {told['tls']['connections']:,} connections that only stand",
        "",
        "`python benchmarks/idle_connections.py`: each says a heartbeat now and then. Costs are the daemon's.",
        "",
        "| | heartbeats/s | share of a core (bar: 10 %) | memory each (bar: 40 kB with TLS) | to let one in |",
        "|---|---|---|---|---|",
    ]
    for kind in ("plain", "tls"):
        part = told[kind]
        lines.append(
            f"| {kind} | {part['beats_per_s']:.0f} | {100 * part['share_of_a_core']:.1f} % | {part['kB_each']:.1f} kB |"
            f" {part['opening']['daemon_ms_each']:.2f} ms |"
        )
    return lines


def watching(told: dict[str, Any]) -> list[str]:
    """What it costs to look."""
    watched, unwatched = told["watched"], told["unwatched"]
    looking, top = "a stream that is read at once", []
    if (share := told.get("top_cpu_share")) is not None:  # not in what was measured before top was among the viewers
        looking = f"and together {looking}, `top` at a terminal and `jobs` every other second"
        top = [f"| `autosched top` | {100 * share:.1f} % of a core | 5 % |"]
    return [
        f"## Looking at {told['active']} active jobs and {told['history']:,} of history",
        "",
        f"`python benchmarks/page_load.py`: a page in Chromium on the same cores, {looking}.",
        "",
        "| | measured | bar |",
        "|---|---|---|",
        f"| `autosched jobs`, the whole process | {1e3 * told['listing']['jobs']['wall_s']:.0f} ms | 300 ms |",
        f"| painted, from nothing | {told['painted_s']:.2f} s | 1 s |",
        f"| stream, at {watched['steps_per_s']:.0f} steps/s | {told['stream_kb_s']:.0f} kB/s | 50 kB/s |",
        f"| 99 % of the loop's lags are at most | {1e3 * watched['lag_p99_at_most_s']:g} ms"
        f" (nobody looks: {1e3 * unwatched['lag_p99_at_most_s']:g} ms) | 10 ms |",
        *top,
        f"| a viewer that stops reading | {told['stuck_viewer_mib']:.2f} MiB | 2 MiB |",
        f"| processor time of one load of the page | {told['load_cpu_ms_at_most']} ms at most | |",
        f"| processor time of being watched | {100 * told['watching_cpu_share']:.1f} % of a core | |",
    ]
