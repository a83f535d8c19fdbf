import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write the scenario transcripts anew; commit the difference only if you can explain it",
    )
