"""Settings and record store of the daemon on this machine, whether or not it runs."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from autosched.config import Config, load
from autosched.errors import RequestError

if TYPE_CHECKING:  # SQLAlchemy and the daemon's database are imported when needed
    from sqlalchemy.engine import URL

    from autosched.recordstore.catalogue import Catalogue

SERVICE_SETTINGS = Path("/etc/autosched/autosched.toml")
RECORDS_VARIABLE = "AUTOSCHED_RECORDS"
"""Environment variable that names the record store."""


def config_of(settings: Path | None) -> Config:
    """Load these settings; without any, those of the user's own daemon, or else of the service."""
    from autosched.daemon.storage import database

    own = load(settings)
    asked = settings is not None or os.environ.get("AUTOSCHED_STATE_DIR")
    if asked or database.database(own.state_dir).exists() or not SERVICE_SETTINGS.exists():
        return own
    return load(SERVICE_SETTINGS)


def store_url(settings: Path | None, store: str) -> "str | URL":
    """URL of the record store given by URL or file; without one, of the store of the daemon with these settings.

    Raises RequestError if that daemon has none.
    """
    from autosched.daemon.storage.record_projection import RECORDS
    from autosched.recordstore import opening

    if store:
        return opening.url_or_file(store)
    config = config_of(settings)
    chosen = config.records.url
    if chosen == "off":
        raise RequestError('there is no record store: records.url is "off" in the settings. Name one with --store')
    return chosen or opening.file_url(config.state_dir / RECORDS)


def own_store(settings: Path | None, store: str) -> "str | URL":
    """Like `store_url`, for writing; the state folder is created if necessary."""
    url = store_url(settings, store)
    if not store:
        config_of(settings).state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    return url


def existing_store(settings: Path | None, store: str) -> "URL":
    """The URL of an existing record store. Raises NotFound."""
    from autosched.recordstore import opening

    return opening.existing(store_url(settings, store))


def named_store() -> str:
    """The record store named by the environment; empty if none."""
    return os.environ.get(RECORDS_VARIABLE, "")


def catalogue(store: str = "", settings: Path | None = None) -> "Catalogue":
    """Open an existing record store for searches. Raises NotFound."""
    from autosched.recordstore.catalogue import Catalogue

    return Catalogue(existing_store(settings, store))
