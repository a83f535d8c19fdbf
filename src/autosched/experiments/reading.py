"""Experiments from Python: `autosched.experiment("NAME").table()`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autosched.errors import RequestError
from autosched.experiments import table
from autosched.experiments.comparison import Compared, compare
from autosched.experiments.parameters import Value
from autosched.experiments.plan import Plan
from autosched.experiments.rows import Row
from autosched.experiments.workspace import Workspace


class Experiment:
    """An experiment that has run on this machine. Read-only, from the disk each time; needs no daemon."""

    def __init__(self, name: str) -> None:
        """Raises NotFound for an experiment that has not run here."""
        self._place = Workspace(name)
        self._place.source()
        self.name = name

    @property
    def folder(self) -> Path:
        """The folder with the report and the records of each job, in `jobs`, by combination."""
        return self._place.folder

    def rows(self) -> list[Row]:
        """The rows of ended jobs, in the order of the file; times in seconds."""
        planned = self._plan()
        return list(self._place.rows().values() if planned is None else self._place.rows_of(planned).values())

    def table(self) -> list[dict[str, Any]]:
        """The rows as flat dictionaries with equal keys, for pandas.DataFrame; docs/experiments.md explains the
        columns."""
        return table.flat(self.rows())

    def compare(
        self, parameter: str, figure: str = "latency_s", *, by: str | Sequence[str] = (), against: Value | None = None
    ) -> list[Compared]:
        """The ratio of a figure with each value of a parameter to that with another one.

        Computed from pairs of jobs that differ in nothing else. by: parameters whose values form groups; all pairs
        together come last. against: the reference; None: the first value. Raises RequestError for an unknown parameter
        or column.
        """
        rows, by = self.rows(), [by] if isinstance(by, str) else list(by)
        known = table.parameters(rows)
        for name in (parameter, *by):
            if name not in known:
                raise RequestError(f"no job of {self.name} has a parameter {name!r}; there are: {', '.join(known)}")
        if figure not in (able := [name for name, kind in table.columns(rows).items() if kind in (int, float)]):
            raise RequestError(f"{figure!r} is no column of numbers; there are: {', '.join(able)}")
        planned = self._plan()
        together, along = (
            ((), ()) if planned is None else (planned.definition.together, planned.definition.along(parameter))
        )
        return compare(rows, parameter, figures=[figure], by=by, against=against, together=together, along=along)

    def _plan(self) -> Plan | None:
        """The jobs as defined by the file; None if a model was removed since."""
        try:
            return self._place.plan()
        except RequestError:
            return None


def experiment(name: str) -> Experiment:
    """An experiment that has run on this machine. Raises NotFound for another one."""
    return Experiment(name)
