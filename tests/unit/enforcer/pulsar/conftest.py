"""What many tests of the Pulsar proxy begin with."""

import pytest
from pulsar_rig import PulsarRig


@pytest.fixture
def rig() -> PulsarRig:
    """A connection that nothing limits."""
    return PulsarRig()
