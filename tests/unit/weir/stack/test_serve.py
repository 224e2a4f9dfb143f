"""What `weir up` says when all is ready."""

from typing import Any

import pytest

from weir.stack import serve


class FakeStack:
    """A stack with a Pulsar proxy, and its metrics."""

    url = "https://m/metrics"

    def addresses(self) -> dict[str, Any]:
        """See Stack."""
        return {"proxy": "h:1", "kafka": "k:2", "admin": "h:3", "pulsar": "p:4", "pulsar_proxy": "h:5"}


@pytest.mark.parametrize(("pulsar_tls", "named"), [(False, "pulsar://h:5"), (True, "pulsar+ssl://h:5")])
def test_pulsars_clients_are_told_where_by_what_they_speak(
    pulsar_tls: bool, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line can be copied into a client."""
    fake: Any = FakeStack()
    serve._announce(fake, fake, None, pulsar_tls=pulsar_tls)
    assert f" {named}, Pulsar itself is p:4\n" in capsys.readouterr().out
