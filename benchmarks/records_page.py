"""The sections of RESULTS.md on the record store."""

from typing import Any

QUERIES = {
    "best_10": "best 10 of a workload, strict key",
    "hints_10": "best 10, loose key",
    "all": "a page of all that is known of a workload",
    "other_devices": "the same workload on other devices",
    "nearest_5": "5 nearest shapes of the same operator",
}


def queries(told: dict[str, Any]) -> list[str]:
    """How fast the store answers."""
    stores = told["stores"]
    heads = " | ".join(one["store"] + ", p50 / p99" for one in stores)
    lines = [
        f"## The record store: {told['records']:,} records of {told['workloads']:,} workloads",
        "",
        "`make bench-records`: made-up records, filled as daemons fill a store, asked at random. Milliseconds, with",
        "the making of the rows that the caller gets. Bars, p99: 1 ms with SQLite; 2 ms for the best 10, PostgreSQL.",
        "",
        f"| | {heads} |",
        f"|---|{'---|' * len(stores)}",
    ]
    for name, words in QUERIES.items():
        cells = " | ".join(f"{one[name]['p50_ms']:.2f} / {one[name]['p99_ms']:.2f}" for one in stores)
        lines.append(f"| {words} | {cells} |")
    rates = " | ".join(f"{one['rows_per_s']:,}" for one in stores)
    lines.append(f"| records/s while it is filled | {rates} |")
    return lines


def cost(told: dict[str, Any]) -> list[str]:
    """What the store costs the daemon."""
    lines = [
        "## What the record store costs the daemon",
        "",
        f"`make bench-records`: {told['clients']} clients, {told['rate']:.0f} durable transitions a second, in turns of"
        f" {told['seconds']:.0f} s",
        "with a store and without. Processor time is the daemon's, all its threads together (bar: 1.05 x).",
        "",
        "| | with a store | without | ratio, median of pairs | ms to the answer, p99, with / without |",
        "|---|---|---|---|---|",
    ]
    for name, words in (
        ("bare", "no records"),
        ("measuring", f"{told['records_per_step']} records in each profile step"),
    ):
        part = told[name]
        lines.append(
            f"| {words} | {part['on_us']:.0f} us | {part['off_us']:.0f} us | {part['ratio']:.3f} |"
            f" {part['ack_p99_ms']['on']:.1f} / {part['ack_p99_ms']['off']:.1f} |"
        )
    return lines


def kills(told: dict[str, Any]) -> list[str]:
    """Kills of daemon and server, and the records that the store has in the end."""
    part = told["records"]
    return [
        "## The record store: daemon and PostgreSQL killed at random",
        "",
        "`make chaos ARGS='records --clients 20 --brief' > benchmarks/results/record_kills.json`: one of the two, or",
        f"both, die (SIGKILL) under {told['clients']} clients; a server is away for 3 s at most. At the end",
        "the store is compared with the daemon's own database, record by record.",
        "",
        "| | bar | measured |",
        "|---|---|---|",
        f"| kills; of the daemon and of PostgreSQL | 200 | {part['kills']}; {part['daemon_kills']} and"
        f" {part['server_kills']} |",
        f"| records of the daemon; in the store | - | {part['records']:,}; {part['stored']:,} |",
        f"| lost, doubled, or any other violation | 0 | {len(part['violations'])} |",
        f"| the store has all, after the last kill and all jobs' ends | - | {part['caught_up_s']:.1f} s |",
    ]


def again(told: dict[str, Any]) -> list[str]:
    """A network that is known already."""
    first, second = told["first"], told["again"]
    measured = second["trial"] + second["again"]
    return [
        f"## {told['network']} tuned, and once more with `--trials 0`",
        "",
        "`make bench-records`: both jobs in one daemon; the compiled networks are measured in turns, with nothing else",
        "running.",
        "",
        "| | first | again | bar |",
        "|---|---|---|---|",
        f"| latency | {1e3 * first['latency_s']:.2f} ms | {1e3 * second['latency_s']:.2f} ms,"
        f" {told['latency_ratio']:.3f} x | 1.02 x |",
        f"| time of the job | {first['seconds']:.0f} s |"
        f" {second['seconds']:.0f} s, {told['time_ratio']:.3f} x | 0.1 x |",
        f"| candidates measured, but for finals | {first['trial'] + first['again']} | {measured} | 0 |",
        f"| of these, measured although the object code was known | {first['measured_twice']} |"
        f" {second['measured_twice']} | 0 |",
        f"| not measured, since the object code was known | {first['copied']} | {second['copied']} | - |",
        f"| measured in finals, with defaults | {first['final'] + first['default']} |"
        f" {second['final'] + second['default']} | - |",
        f"| tasks with a schedule of the record store | {first['tasks_from_store']} of {first['tasks']} |"
        f" {second['tasks_from_store']} of {second['tasks']} | - |",
    ]


def round_trip(told: dict[str, Any]) -> list[str]:
    """Schedules out to TVM and back."""
    kernels = told["kernels"]
    close = sum(abs(one["tvm_us"] / one["ours_us"] - 1) <= 0.02 for one in kernels)
    left = ", ".join(f"{count} {reason}" for reason, count in told["left_out"].items()) or "nothing"
    return [
        f"## Schedules of {told['network']} out to MetaSchedule and back",
        "",
        "`python benchmarks/round_trip.py`: what Ansor's method measured, as a database of MetaSchedule, into another",
        "store, and out again. TVM alone compiles the best schedule of each workload; its kernels and ours are",
        "measured in turns. TVM takes buffers above one kilobyte from a pool, which our lowering keeps on the stack:",
        "a kernel with such a tile is slower there, whatever its schedule.",
        "",
        "| | bar | measured |",
        "|---|---|---|",
        f"| traces after the round trip | byte-equal | {'byte-equal' if told['traces_equal'] else 'not equal'},"
        f" {told['read_back']} of {told['records']} |",
        f"| left out | - | {left} |",
        f"| latency with TVM alone over ours, median of {len(kernels)} kernels | 1.02 x | {told['ratio']:.3f} x |",
        f"| least and greatest; sum over sum | - | {told['ratio_min']:.2f} x and {told['ratio_max']:.2f} x;"
        f" {told['total_ratio']:.3f} x |",
        f"| kernels within 2 % | - | {close} of {len(kernels)} |",
    ]


def goals(told: dict[str, Any]) -> list[str]:
    """Jobs that end with a latency."""
    jobs = [job for network in told["networks"] for job in network["jobs"]]
    lines = [
        "## A latency instead of a number of trials",
        "",
        "`python benchmarks/latency_goals.py --state DIR`: each network is tuned once; then jobs ask for 1.3, 1.1 and",
        f"1.0 times its latency, with a deadline of {told['deadline_s']:.0f} s. Each module is measured three more",
        "times, later.",
        "",
        "| | bar | measured |",
        "|---|---|---|",
        f"| goals that are met with what is known, without a trial | - | {told['met_without_search']} of {len(jobs)} |",
        f"| goals that are met | - | {told['met']} of {len(jobs)} |",
        f"| wrong claims in three later measurements of each | 0 | {told['wrong_claims']} |",
        "",
        "| network | goal | result | trials | time | the search ended | later |",
        "|---|---|---|---|---|---|---|",
    ]
    for network in told["networks"]:
        for job in network["jobs"]:
            later = ", ".join(f"{one:.2f}" for one in job["later_ms"])
            cells = (
                network["network"], f"{job['factor']} x: {job['goal_ms']:.2f} ms",
                f"{job['reached']}, {job['latency_ms']:.2f} ms", str(job["trials"]), f"{job['seconds']:.0f} s",
                job["ended"], f"{later} ms",
            )  # fmt: skip
            lines.append(f"| {' | '.join(cells)} |")
    return lines
