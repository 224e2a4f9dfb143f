"""Options that several commands share."""

from argparse import Namespace
from pathlib import Path

import pytest

from streaming.contract.errors import ConfigError
from weir.options import cluster_of


@pytest.mark.parametrize(
    ("written", "part", "expected"),
    [
        ("{security.protocl: SSL}", "", "2: kafka.client.security.protocl: No such configuration property"),
        ("{security.protocol: s3cret}", "", '2: kafka.client.security.protocol: Invalid value "..."'),
        ("{acks: '1'}", "", "2: kafka.client.acks: "),
        ("{}\n  clients: {proxy: {socket.timeout.ms: x}}", "proxy", "3: kafka.clients.proxy.socket."),
        ("{sasl.mechanism: PLAIN}\n  clients: {job: {acks: '1'}}", "job", "3: kafka.clients.job.acks: "),
    ],
)
def test_a_property_that_librdkafka_does_not_take_is_named(
    written: str, part: str, expected: str, tmp_path: Path
) -> None:
    """With its line and without its value: a command ended with a traceback, a thread of a proxy with it."""
    file = tmp_path / "weir.yaml"
    file.write_text(f"kafka:\n  client: {written}\n")
    args = Namespace(kafka=None, settings=str(file))
    with pytest.raises(ConfigError) as wrong:
        cluster_of(args, part)
    assert str(wrong.value).startswith(f"{file}:{expected}") and "s3cret" not in str(wrong.value)
    # The doctor tells it among all else.
    assert cluster_of(args, part, tried=False).client
