"""Opens the database of a record store: connections with deadlines, and the version of its tables.

The server ends a statement after a deadline. If the server itself hangs, `interrupt` cuts the connection from another
thread.
"""

import contextlib
import os
import socket
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, insert, inspect, select, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from autosched.errors import ConfigError, NotFound, StoreUnavailable
from autosched.recordstore.tables import META, VERSIONS
from autosched.version import LAST_UNRELEASED

SCHEMA = "1.0"
"""Version of the present schema."""
UNRELEASED = ("1", "2", "3", "4", "5", "6")
"""Versions from before the first release."""
CONNECT_S = 5
"""Maximum seconds of a connection attempt."""
STATEMENT_S = 30
"""Seconds after which the server ends a statement."""
BUSY_S = 10.0
"""Maximum seconds to wait for another process that writes to the same SQLite file."""
CACHE_KIB = 32 * 1024
"""Page cache of each connection to SQLite, in KiB."""
CHECKPOINT_PAGES = 4_000
"""Pages in SQLite's log before they are moved to the file: a page that changes often is moved once."""
CREATING = 0x6175746F
"""Key of the lock that lets one process at a time create the tables in a PostgreSQL database."""
DIALECTS = ("sqlite", "postgresql")


class Unstorable(StoreUnavailable):
    """The database works, and refuses these values."""


def file_url(path: Path) -> URL:
    """The URL of a store in a file."""
    return URL.create("sqlite", database=str(path))


def url_or_file(text: str) -> str | URL:
    """The URL of a store that a user names by its URL or its file."""
    return text if "://" in text else file_url(Path(text).absolute())


def existing(store: str | URL) -> URL:
    """The URL of a store that exists already, as far as this can be told without opening it. Raises ConfigError, and
    NotFound."""
    url = read_url(store)
    if url.get_backend_name() == "sqlite" and not Path(url.database or "").exists():
        raise NotFound(f"there is no record store {url.database}. Name one with --store, or tune something first")
    return url


def read_url(text: str | URL) -> URL:
    """The URL of a store. Raises ConfigError."""
    try:
        url = make_url(text)
    except ArgumentError:
        url = None
    if url is None or url.get_backend_name() not in DIALECTS or not url.database:
        raise ConfigError(
            f"{text!r} is no URL of a record store; write postgresql://USER@HOST/DATABASE, or sqlite:////PATH/FILE.db"
        )
    if url.get_backend_name() == "postgresql":
        try:
            import psycopg  # noqa: F401  (only whether it is there)
        except ImportError:
            raise ConfigError(
                "a record store on PostgreSQL needs the driver psycopg; install it: pip install 'autosched[postgresql]'"
            ) from None
    return url


def shown(url: URL) -> str:
    """The URL without its password and the name of its driver."""
    return url.set(drivername=url.get_backend_name()).render_as_string(hide_password=True)


def engine(url: URL) -> Engine:
    """Connections to the store; none is opened yet."""
    if url.get_backend_name() == "sqlite":
        made = create_engine(url, connect_args={"timeout": BUSY_S, "check_same_thread": False}, poolclass=NullPool)
        event.listen(made, "connect", _prepare_sqlite)
        return made
    limits = {
        "connect_timeout": CONNECT_S,
        "tcp_user_timeout": 1000 * STATEMENT_S,
        "options": f"-c statement_timeout={STATEMENT_S}s -c lock_timeout={STATEMENT_S}s"
        f" -c idle_in_transaction_session_timeout={2 * STATEMENT_S}s",
        "application_name": "autosched",
    }
    return create_engine(url.set(drivername="postgresql+psycopg"), connect_args=limits, poolclass=NullPool)


def create(made: Engine) -> None:
    """Create the tables in an empty database. Raises StoreUnavailable for one of another schema."""
    with explained(made.url), made.begin() as connection:
        if _schema(connection) == SCHEMA:
            return
    with explained(made.url), made.begin() as connection:
        _lock(connection)
        if (found := _schema(connection)) == SCHEMA:
            return  # another process has created them
        if found in UNRELEASED:
            raise StoreUnavailable(
                f"the record store {shown(made.url)} is from before the first release. Open it once with autosched"
                f" records list as of commit {LAST_UNRELEASED}, or name another database in records.url: a daemon"
                " writes there what it has measured itself"
            )
        if found:
            raise StoreUnavailable(
                f"the record store {shown(made.url)} was written by a newer autosched (schema {found}); install that"
                " again, or name another database in records.url"
            )
        META.create_all(connection)
        connection.execute(insert(VERSIONS).values(version_num=SCHEMA))


def _lock(connection: Connection) -> None:
    """Let one process at a time change the schema, in this transaction."""
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SELECT pg_advisory_xact_lock({CREATING})"))
    else:
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def _schema(connection: Connection) -> str:
    """Version of the schema; empty if there is none yet."""
    if not inspect(connection).has_table(VERSIONS.name):
        return ""
    return connection.execute(select(VERSIONS.c.version_num)).scalar() or ""


def _prepare_sqlite(connection: sqlite3.Connection, _: object) -> None:
    _use_write_ahead_log(connection)
    for pragma in (
        "synchronous = NORMAL",  # a commit that a power failure reverts is repeated from the daemon's database
        f"cache_size = -{CACHE_KIB}",
        f"wal_autocheckpoint = {CHECKPOINT_PAGES}",
    ):
        connection.execute(f"PRAGMA {pragma}")


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Switch to the write-ahead log; SQLite does not wait by itself for another connection that does the same to a new
    file."""
    until = time.monotonic() + BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
        time.sleep(BUSY_S / 1_000)


@contextlib.contextmanager
def explained(url: URL) -> Iterator[None]:
    """Convert exceptions of a database or its driver to StoreUnavailable with advice."""
    try:
        yield
    except (SQLAlchemyError, OSError, OverflowError) as error:
        cause: Any = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
        said = " ".join(str(cause).split()) or type(cause).__name__
        if url.get_backend_name() == "sqlite":
            advice = "check the disk, and the rights of that file"
            if isinstance(cause, sqlite3.DatabaseError) and not isinstance(cause, sqlite3.OperationalError):
                advice = "move that file away: the daemon fills a new one with all that it measured itself"
        else:
            advice = "check that the server runs and lets this user in; records.url names it"
        kind = Unstorable if isinstance(error, OverflowError | DataError | IntegrityError) else StoreUnavailable
        raise kind(f"the record store {shown(url)} cannot be used ({said}); {advice}") from error


def interrupt(connection: Any) -> None:
    """Make a thread that waits on this driver's connection fail at once; called from another thread.

    Connections to SQLite are left alone: they wait for BUSY_S at most, and may be closed at this moment.
    """
    if isinstance(connection, sqlite3.Connection):
        return
    with contextlib.suppress(Exception), socket.socket(fileno=os.dup(connection.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)


class Database:
    """One connection to a store, for one thread at a time. It connects on first use, and again after each error, and
    creates the tables before it uses them."""

    def __init__(self, url: str | URL, *, reads_only: bool = False) -> None:
        """`reads_only`: each statement stands alone, which saves a server two round trips. Raises ConfigError for a URL
        of no store."""
        self.url, self._reads_only = read_url(url), reads_only
        self.engine = engine(self.url)
        self.known: tuple[dict[Any, Any], ...] = ()
        """Cache of the content for the connection's user, dropped with the connection."""
        self._connection: Connection | None = None

    def close(self) -> None:
        """Close the connection. The next use opens another one."""
        connection, self._connection = self._connection, None
        for one in self.known:
            one.clear()
        if connection is not None:
            with contextlib.suppress(Exception):  # the server may be unreachable
                connection.close()

    def interrupt(self) -> None:
        """Make the thread that waits for the database fail with StoreUnavailable; called from another thread."""
        with contextlib.suppress(Exception):
            if (connection := self._connection) is not None:
                interrupt(connection.connection.driver_connection)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Run a transaction. Raises StoreUnavailable; then nothing was written, and the connection is closed."""
        try:
            with explained(self.url):
                if self._connection is None:
                    create(self.engine)
                    self._connection = self.engine.connect()
                    if self._reads_only:
                        self._connection.execution_options(isolation_level="AUTOCOMMIT")
                with self._connection.begin():
                    yield self._connection
        except BaseException:
            self.close()
            raise
