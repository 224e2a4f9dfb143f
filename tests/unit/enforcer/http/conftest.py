"""A proxy of an admin API for every test here."""

import pytest
from http_kit import Front


@pytest.fixture
def front() -> Front:
    """A proxy and what stands behind it."""
    return Front()
