import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first, so that nobody waits for it alone."""
    items.sort(key=lambda item: item.path.name != "test_demo.py")
