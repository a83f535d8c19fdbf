"""The best latency over time, for a terminal: a step function in blocks."""

from collections.abc import Sequence

from autosched import formatting

EIGHTHS = " ▁▂▃▄▅▆▇█"
LETTERS = " .:#"
LABEL_WIDTH = 9


def curve(
    points: Sequence[tuple[float, float]], now: float, width: int, height: int, *, unicode: bool = True
) -> list[str]:
    """Lines of at most `width` characters. `points`: times and best latencies from then on, in seconds; until `now`."""
    if not points:
        return ["no estimate yet: not every task was measured"]
    shades = EIGHTHS if unicode else LETTERS
    first, best = points[0][1], min(value for _, value in points)
    lowest, highest = best, max(value for _, value in points)
    cells, start = max(2, width - LABEL_WIDTH), points[0][0]
    values, at = [first], 0  # so that a fall within the first cell is visible
    for cell in range(1, cells):
        until = now if cell == cells - 1 else start + cell / (cells - 1) * max(now - start, 0.0)
        while at + 1 < len(points) and points[at + 1][0] <= until:
            at += 1
        values.append(points[at][1])
    steps = (len(shades) - 1) * height
    spread = highest - lowest
    levels = [1 + round((value - lowest) / (spread or 1.0) * (steps - 1)) for value in values]
    lines = []
    for row in range(height):
        below = (height - 1 - row) * (len(shades) - 1)
        label = (
            formatting.latency(first) if row == 0 and spread else formatting.latency(best) if row == height - 1 else ""
        )
        bar = "".join(shades[min(max(level - below, 0), len(shades) - 1)] for level in levels)
        lines.append(f"{label:>{LABEL_WIDTH - 1}} {bar}")
    return lines


def axis(from_s: float, until_s: float, width: int) -> str:
    """The axis: times at both ends and in the middle."""
    cells = max(1, width - LABEL_WIDTH)
    middle = formatting.duration((from_s + until_s) / 2)
    left = f"{formatting.duration(from_s):<{max(1, (cells - len(middle)) // 2)}}{middle}"
    return f"{'':{LABEL_WIDTH}}{left}{formatting.duration(until_s):>{max(1, cells - len(left))}}"
