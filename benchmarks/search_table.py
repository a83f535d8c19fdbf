"""Latencies of a task's candidates, kept on disk, so that each is built and measured once for all searches.

Compared searches propose mostly the same candidates, and repeated measurements would distinguish them by noise.
Querying a table instead is the simulation mode of Kernel Tuner (Willemsen, van Nieuwpoort, van Werkhoven, "Bayesian
Optimization for auto-tuning GPU kernels", PMBS 2021) and of tabular benchmarks of architecture search (Ying et al.,
"NAS-Bench-101", ICML 2019). There the table is complete from the beginning; here queries fill it.

The speed of a shared machine varies. The fastest sample counts, which other load disturbs least, and each candidate is
measured in turns with an anchor, one fixed candidate of the task: if the anchor is slower than usual, the measurement
is repeated. Dividing by the anchor's time was worse: the anchor and the best candidates have different bottlenecks, so
that a disturbance may affect one of them only.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Entry:
    """Measurements of a candidate."""

    latency_s: float | None
    """Latency in seconds; None for a failure."""
    build_s: float
    profile_s: float
    again_s: float | None = None
    """Latency of a second, longer measurement in seconds."""


class Table:
    """All entries of one task: a file of JSON lines, the anchor's first. An incomplete line is ignored."""

    def __init__(self, folder: Path, name: str) -> None:
        """`name`: identifies task and processor."""
        self._path = folder / f"{digest(name)}.jsonl"
        self._name = name
        self.anchor: bytes | None = None
        self.anchor_s = 0.0
        """Undisturbed latency of the anchor in seconds."""
        self._entries: dict[str, Entry] = {}
        folder.mkdir(parents=True, exist_ok=True)
        if self._path.exists():
            text = self._path.read_text(encoding="utf-8")
            whole = text[: text.rindex("\n") + 1] if "\n" in text else ""
            for line in whole.splitlines():
                self._take(json.loads(line))
            if whole != text:
                self._path.write_text(whole, encoding="utf-8")

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, candidate: bytes) -> bool:
        return key(candidate) in self._entries

    def artifact(self, candidate: bytes) -> Path:
        """Returns the path of a candidate's kernel, if it was built in advance."""
        return self._path.parent / f"{key(candidate)}.so"

    def __getitem__(self, candidate: bytes) -> Entry:
        return self._entries[key(candidate)]

    @property
    def best_s(self) -> float | None:
        """Returns the best latency of all candidates."""
        return min((entry.latency_s for entry in self._entries.values() if entry.latency_s is not None), default=None)

    def begin(self, anchor: bytes, samples_s: Sequence[float]) -> None:
        """Sets the anchor, and its latency in seconds."""
        self._write({"task": self._name, "anchor": anchor.decode(), "anchor_s": min(samples_s)})

    def keep(
        self, candidate: bytes, samples_s: Sequence[float], build_s: float, profile_s: float, *, again: bool = False
    ) -> None:
        """Stores samples of a candidate, none for a failure; `again`: of the second measurement."""
        told = {"key": key(candidate), "latency_s": min(samples_s, default=None)}
        told |= {"build_s": round(build_s, 4), "profile_s": round(profile_s, 4)}
        self._write({**told, "again": True} if again else told)

    def _write(self, told: Mapping[str, Any]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(told, separators=(",", ":")) + "\n")
        self._take(told)

    def _take(self, told: Mapping[str, Any]) -> None:
        if "anchor" in told:
            self.anchor, self.anchor_s = told["anchor"].encode(), told["anchor_s"]
            return
        known = self._entries.get(told["key"])
        if told.get("again") and known is not None:
            self._entries[told["key"]] = Entry(known.latency_s, known.build_s, known.profile_s, told["latency_s"])
        else:
            self._entries[told["key"]] = Entry(told["latency_s"], told["build_s"], told["profile_s"])


def key(candidate: bytes) -> str:
    """Returns a key that is equal for equal schedules, whatever their searches store with them."""
    return digest(json.dumps(json.loads(candidate)[:2], separators=(",", ":")))


def digest(text: str) -> str:
    """Returns a short digest, in practice different for different texts."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
