"""The options of `weir up` for a Pulsar."""

import pytest

from weir import cli


def test_what_a_pulsar_is_given_as() -> None:
    """An address or `local`; nothing by default."""
    parser = cli.build_parser("up")
    assert parser.parse_args(["up"]).pulsar is None
    assert parser.parse_args(["up", "--pulsar", "local"]).pulsar == "local"
    given = parser.parse_args(["up", "--pulsar", "h:6650", "--pulsar-admin", "http://h:8080/"])
    assert (given.pulsar, given.pulsar_admin) == ("h:6650", "http://h:8080")
    assert given.pulsar_listen == ("127.0.0.1", 16650)


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("--pulsar", "here", "invalid HOST:PORT or local value: 'here'"),
        ("--pulsar", "h:70000", "invalid HOST:PORT or local value"),
        ("--pulsar-admin", "h:8080", "invalid http://HOST:PORT value: 'h:8080'"),
        ("--pulsar-admin", "http://", "invalid http://HOST:PORT value"),
        ("--pulsar-admin", "http://h/?a=b", "invalid http://HOST:PORT value"),
        ("--pulsar-admin", "http://[::1", "invalid http://HOST:PORT value"),
        ("--pulsar-listen", "16650", "invalid HOST:PORT value: '16650'"),
    ],
)
def test_wrong_addresses_are_bad_usage(
    option: str, value: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 2, with the option and what was expected."""
    with pytest.raises(SystemExit) as ended:
        cli.build_parser("up").parse_args(["up", option, value])
    assert ended.value.code == 2
    shown = capsys.readouterr().err
    assert option in shown and expected in shown
