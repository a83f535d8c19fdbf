import pytest

from integration.conftest import cli, there  # noqa: F401  (a lab and commands for the files without their own)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Starts the longest tests first, so that the others run beside them."""
    items.sort(key=lambda item: item.path.name != "test_demo.py")
