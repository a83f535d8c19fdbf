import pytest
from hypothesis import HealthCheck, settings

# A machine that is busy with something else is no failure.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write the scenario transcripts anew; commit the difference only if you can explain it",
    )
