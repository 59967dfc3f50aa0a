"""`pytest tests/grader/report --renew-goldens` writes the golden reports anew."""

from __future__ import annotations

import pytest


@pytest.fixture
def renew(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--renew-goldens"))
