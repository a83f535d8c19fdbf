"""Tasks collected from networks: the tasks, the networks that use them, and what the store knows of each."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct
from sqlalchemy import ColumnElement, case, delete, func, select

from autosched.model import Program
from autosched.recordstore.keys import candidate_digest
from autosched.recordstore.queries import Lookup
from autosched.recordstore.rows import Workload
from autosched.recordstore.store import RecordStore
from autosched.recordstore.tables import ENVIRONMENTS, NETWORKS, SCHEDULES, USES, WORKLOADS

UNTUNED = b""
"""Candidate of the backends on TVM that means no schedule."""


class Scope(Struct, frozen=True):
    """Properties that collected tasks must share to be tuned by one job."""

    target: str
    """As in `keys.Environment.target`."""
    layout: str
    """Memory layout of convolutions, and other options of the import."""


class Collected(Struct, frozen=True):
    """A network in one size."""

    model: str
    """Content hash of the network's file."""
    name: str
    change: str
    """The size if it differs from the file's: "x=1,3,64,64, batch 4, resolution 0.75"; empty if it does not."""
    scope: Scope
    importer: str
    """Versions of the importer."""
    notes: tuple[str, ...]
    """Operators that only accept the sizes of the file; from them on nothing was changed."""
    collected_at: float
    """Unix time in seconds."""
    uses: Mapping[Workload, int]
    """Number of calls of each task in an inference."""


class Use(Struct, frozen=True):
    """One task of one collected network."""

    network: int
    """Identifies the network in one size."""
    model: str
    """Content hash of the network's file."""
    workload: Workload
    weight: int
    """Number of calls in one inference."""


class Knowledge(Struct, frozen=True):
    """Summary of a workload's measurements."""

    best_s: float | None
    """Latency of its fastest schedule in seconds."""
    untuned_s: float | None
    """Latency without a schedule in seconds."""
    tried: int
    """Number of measured schedules, failures included."""


class Collector(RecordStore):
    """Adds collected networks to an open store. All methods raise StoreUnavailable."""

    def changes(self, model: str, scope: Scope, importer: str) -> set[str]:
        """Sizes in which this importer has collected a model."""
        wanted = (
            NETWORKS.c.model == model, NETWORKS.c.target == scope.target, NETWORKS.c.layout == scope.layout,
            NETWORKS.c.importer == importer,
        )  # fmt: skip
        with self._database.transaction() as connection:
            return set(connection.execute(select(NETWORKS.c.change).where(*wanted)).scalars())

    def add_network(self, found: Collected, programs: Mapping[Workload, Program]) -> int:
        """Store a network, replacing an earlier collection of it; returns the number of its tasks that no collected
        network had."""
        self.add_programs(programs)
        row = {
            "model": found.model, "name": found.name, "change": found.change, "target": found.scope.target,
            "layout": found.scope.layout, "importer": found.importer,
            "notes": msgspec.json.encode(found.notes).decode(), "collected_at": found.collected_at,
        }  # fmt: skip
        same = [NETWORKS.c[name] == row[name] for name in ("model", "change", "target", "layout")]
        with self._database.transaction() as connection:
            self._know_workloads(connection, found.uses)
            numbers = {self._workloads[workload.hash]: weight for workload, weight in found.uses.items()}
            known = set(
                connection.execute(select(USES.c.workload_id).where(USES.c.workload_id.in_(list(numbers)))).scalars()
            )
            put = self._insert(NETWORKS).on_conflict_do_update(
                index_elements=("model", "change", "target", "layout"),
                set_={name: row[name] for name in ("name", "importer", "notes", "collected_at")},
            )
            connection.execute(put, row)
            network = connection.execute(select(NETWORKS.c.id).where(*same)).scalar_one()
            connection.execute(delete(USES).where(USES.c.network_id == network))
            rows = [
                {"network_id": network, "workload_id": workload, "weight": weight}
                for workload, weight in sorted(numbers.items())
            ]
            if rows:
                connection.execute(self._insert(USES), rows)
        return len(numbers.keys() - known)


class Collection(Lookup):
    """Reads collected networks from an open store. All methods raise StoreUnavailable."""

    def scopes(self) -> list[Scope]:
        """Scopes of collected networks, the latest first."""
        columns = NETWORKS.c.target, NETWORKS.c.layout
        latest = select(*columns).group_by(*columns).order_by(func.max(NETWORKS.c.collected_at).desc())
        with self._database.transaction() as connection:
            return [Scope(*row) for row in connection.execute(latest)]

    def networks(self, scope: Scope) -> Iterator[Collected]:
        """Networks of a scope, each in all its sizes, in the order in which they were first collected."""
        uses: dict[int, dict[Workload, int]] = {}
        for use in self.uses(scope):
            uses.setdefault(use.network, {})[use.workload] = use.weight
        with self._database.transaction() as connection:
            rows = connection.execute(select(NETWORKS).where(*_of(scope)).order_by(NETWORKS.c.id)).all()
        for row in rows:
            notes = msgspec.json.decode(row.notes, type=tuple[str, ...])
            told = row.model, row.name, row.change, scope, row.importer, notes, row.collected_at
            yield Collected(*told, uses.get(row.id, {}))

    def uses(self, scope: Scope) -> list[Use]:
        """All tasks of all collected networks of a scope."""
        columns = (WORKLOADS.c[name] for name in Workload.__struct_fields__)
        rows = (
            select(NETWORKS.c.id, NETWORKS.c.model, USES.c.weight, *columns)
            .select_from(NETWORKS)
            .join(USES)
            .join(WORKLOADS)
            .where(*_of(scope))
            .order_by(NETWORKS.c.id, WORKLOADS.c.id)
        )
        with self._database.transaction() as connection:
            return [
                Use(network, model, Workload(*told), weight)
                for network, model, weight, *told in connection.execute(rows)
            ]

    def known(self, scope: Scope, backend: str, threads: int) -> dict[str, Knowledge]:
        """Measurements of collected workloads by a backend, by hash of the workload.

        threads: number of threads of a kernel; measurements of backends that do not report it are included. Device
        models and compiler versions are not distinguished.
        """
        untuned = case((SCHEDULES.c.digest == candidate_digest(UNTUNED), SCHEDULES.c.best_s))
        rows = (
            select(WORKLOADS.c.hash, func.min(SCHEDULES.c.best_s), func.min(untuned), func.count())
            .select_from(SCHEDULES)
            .join(WORKLOADS)
            .join(ENVIRONMENTS)
            .where(
                *_measured_by(scope, backend),
                ENVIRONMENTS.c.threads.in_((threads, 0)),
                SCHEDULES.c.workload_id.in_(select(USES.c.workload_id).join(NETWORKS).where(*_of(scope))),
            )
            .group_by(WORKLOADS.c.hash)
        )
        with self._database.transaction() as connection:
            return {hashed: Knowledge(*told) for hashed, *told in connection.execute(rows)}

    def threads(self, scope: Scope, backend: str) -> int:
        """The number of threads with which a backend has measured most schedules; 1 if it has measured none."""
        rows = (
            select(ENVIRONMENTS.c.threads)
            .select_from(SCHEDULES)
            .join(ENVIRONMENTS)
            .where(*_measured_by(scope, backend))
            .group_by(ENVIRONMENTS.c.threads)
            .order_by(func.count().desc())
        )
        with self._database.transaction() as connection:
            return connection.execute(rows.limit(1)).scalar() or 1


def _measured_by(scope: Scope, backend: str) -> Sequence[ColumnElement[bool]]:
    return [
        ENVIRONMENTS.c.target == scope.target,
        ENVIRONMENTS.c.backend.startswith(f"{backend} ", autoescape=True),
    ]


def _of(scope: Scope) -> Sequence[ColumnElement[bool]]:
    return [NETWORKS.c.target == scope.target, NETWORKS.c.layout == scope.layout]
