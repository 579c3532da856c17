from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.external_postgres import external_postgres
from tests.services import Caller, Service

__all__ = ["external_postgres"]  # a fixture


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """Running over the example rack, with the embedded database."""
    running = Service(tmp_path / "data")
    running.start()
    yield running
    running.stop()


@pytest.fixture
def caller(service: Service) -> Iterator[Caller]:
    with service.caller() as ready:
        yield ready
