"""What tests of connections by TLS begin with."""

import pytest
from tls_kit import Authority


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Whom servers and clients trust."""
    return Authority(tmp_path_factory.mktemp("own"))
