"""The sections of RESULTS.md on restarts and on damage."""

from typing import Any


def restart(told: dict[str, Any]) -> list[str]:
    """How soon a daemon with a long past serves."""
    return [
        f"## A restart with {told['jobs']:,} jobs",
        "",
        f"`python benchmarks/restart_cost.py`: a database of {told['database_mb']:.0f} MB with {told['rows']:,} rows"
        f" ({told['events']:,} events, {told['records']:,} records, {told['spans']:,} steps,"
        f" {told['stage_times']:,} times of stages), all of which are checked;"
        f" then kill -9 and a start, of {told['runs']} the median.",
        "",
        "| | bar | measured |",
        "|---|---|---|",
        f"| start of the process to the first answer | 5 s | {told['serving_s']:.1f} s |",
        f"| processor time of that | - | {told['serving_cpu_s']:.1f} s |",
        f"| of it the check of all rows | - | {told['check_cpu_s']:.1f} s |",
        f"| the same without a snapshot (all events are replayed) | - | {told['without_snapshot_s']:.1f} s |",
        f"| size of a snapshot, made in | - | {told['snapshot_mb']:.0f} MB, {told['snapshot_s']:.1f} s |",
        f"| resident memory after the start | - | {told['daemon_rss_mb']:.0f} MB |",
    ]


def flips(told: dict[str, Any]) -> list[str]:
    """Which flipped bits are found."""
    lines = [
        "## Single flipped bits",
        "",
        "`python benchmarks/bit_flips.py`: one bit anywhere in the database or in its write-ahead log, then the check",
        "of a start. Harmless: in space that nobody reads.",
        "",
        "| in | flips | found | harmless | missed |",
        "|---|---|---|---|---|",
    ]
    for name, words in (("file", "the database"), ("log", "its log")):
        part = told[name]
        flipped = part["found"] + part["harmless"] + part["missed"]
        lines.append(
            f"| {words}, {told[f'{name}_bytes'] / 1e3:.0f} kB | {flipped} | {part['found']} | {part['harmless']} |"
            f" {part['missed']} |"
        )
    return [*lines, "", f"Found of those that change anything: {100 * told['found_share']:.1f} % (bar: 99 %)."]


def chaos(told: dict[str, Any]) -> list[str]:
    """What came of the fault matrix."""
    kills, matrix, tvm, makespan = told["kills"], told["matrix"], told["tvm"], told["makespan"]
    parts = (kills, matrix, tvm)

    def total(*names: str) -> str:
        return " + ".join(f"{sum(part[name] for part in parts):,}" for name in names)

    noticed_s = max(part["dead_client_noticed_s"] for part in (kills, matrix))
    return [
        "## The fault matrix",
        "",
        "`make chaos` (`docs/faults.md`): a daemon killed at random moments under its clients, every other fault, and",
        f"a TVM job whose daemon is killed {tvm['kills']} times and its client {tvm['clients_that_died']} times. Times",
        "are those of a machine that others kept busy.",
        "",
        "| | bar | measured |",
        "|---|---|---|",
        f"| kill -9 of the daemon under {told['clients']} clients | 1,000 | {kills['kills']:,} |",
        "| acknowledged submits + cancels, which all held | - |"
        f" {total('submits_acknowledged', 'cancels_acknowledged')} |",
        f"| steps made; acknowledged ends; records | - | {total('steps_made')}; {total('steps_acknowledged')};"
        f" {total('records')} |",
        "| lost, counted twice, repeated by the same client, or two on one unit | 0 |"
        f" {sum(len(part['violations']) for part in (*parts, makespan))} |",
        f"| clients that died, and steps that ran on them | - | {total('clients_that_died')},"
        f" {total('steps_running_at_a_death')} |",
        f"| serving again: median, maximum | 5 s | {kills['serving_again_median_s']:.2f} s,"
        f" {kills['serving_again_s']:.1f} s |",
        f"| a dead client noticed | 1 s | {noticed_s:.2f} s |",
        f"| a frozen client ended | 35 s | {matrix['frozen_client_noticed_s']:.0f} s |",
        "| a frozen foreign client noticed: it gets no more steps | 35 s |"
        f" {matrix['frozen_foreign_client_noticed_s']:.0f} s |",
        "| and given up, when it must have ended its last step: silence, limit and grace, 20 + 20 + 10 s | 52 s |"
        f" {matrix['frozen_foreign_client_given_up_s']:.0f} s |",
        f"| a client whose cable was cut is back | 35 s | {matrix['cut_cable_noticed_s']:.0f} s |",
        "| an endless stage is killed: limit 20 s, or ten times what is rare | - |"
        f" {matrix['endless_stage_killed_s']:.0f} s |",
        f"| a user who does not read has to leave; memory it cost | 15 s; 2 MiB | {matrix['slow_reader_left_s']:.0f} s;"
        f" {matrix['slow_reader_mib']:.1f} MiB |",
        "| steps spoilt when the wall clock is set, by up to a year; when all stand still for 30 s | 0; 0 |"
        f" {matrix['spoilt_when_the_clock_was_set']}; {matrix['spoilt_when_all_stood_still']} |",
        "| time of jobs whose clients and daemons die, over that undisturbed + noticing + what is made again | 1 |"
        f" {makespan['disturbed_over_allowed']:.2f} |",
        f"| SIGTERM with running steps: gone | 10 s | {matrix['sigterm_s']:.1f} s |",
        *(
            ["", f"Missed: {'; '.join(said)}."]
            if (said := [one for part in parts for one in part.get("missed", ())])
            else []
        ),
    ]


def seeds(told: dict[str, Any]) -> list[str]:
    """Which worlds were simulated, of which builds."""
    return [
        "## Simulated worlds with faults",
        "",
        "`python benchmarks/compiled.py benchmarks/seeds.py --seeds 1000000 --processes 2`, besides those of",
        "`make test`. All invariants are checked after each event, and all jobs ended. Compiled: the same sources as",
        "machine code, which first decided 400 other seeds as the interpreter does.",
        "",
        "| seeds | commit | compiled | events | jobs | violations |",
        "|---|---|---|---|---|---|",
        *(
            f"| {part['first']:,} to {part['first'] + part['seeds'] - 1:,} | {part['commit']} |"
            f" {'yes' if part.get('compiled') else 'no'} | {part['events']:,} |"
            f" {part['jobs']:,} | 0 |"
            for part in told["parts"]
        ),
    ]


def fuzz(told: dict[str, Any]) -> list[str]:
    """What hostile frames came to."""
    return [
        "## Hostile frames",
        "",
        "`make fuzz ARGS='--frames 250000 --seed 41'`, and other seeds: mutated frames, before and after hello.",
        "Processor time, the collector's included; beside it what the machine makes of harmless steps by the same",
        "clock: after each of the daemon's, a thousand additions, and a write of 90 bytes to somebody who reads.",
        "Sending is what the kernel takes for a write, mostly of some 90 bytes.",
        "",
        "| seed | frames (bar: 1,000,000) | crashes (0) | mean, worst step (1 ms) | steps above 1 ms; decoded again:"
        " still so | where | as many additions, writes above 1 ms; worst | resident memory, first and last fifth |",
        "|---|---|---|---|---|---|---|---|",
        *map(_fuzzed, told["parts"]),
    ]


def _fuzzed(part: dict[str, Any]) -> str:
    spent = part["spent"]
    where = ", ".join(f"{name} {count}" for name, count in spent["slow_in"].items())
    return (
        f"| {part['seed']} | {part['frames']:,} | {len(part['crashes'])} |"
        f" {spent['total_s'] / spent['steps'] * 1e6:.0f} us, {spent['worst_ms']:.1f} ms |"
        f" {spent['slow']} of {spent['steps']:,}; {len(part['frames_always_slow'])} | {where} |"
        f" {spent['adding']['slow']}, {spent['writing']['slow']};"
        f" {max(spent['adding']['worst_ms'], spent['writing']['worst_ms']):.1f} ms |"
        f" {part['rss_mb'][0]:.0f} MB, {part['rss_mb'][-1]:.0f} MB |"
    )
