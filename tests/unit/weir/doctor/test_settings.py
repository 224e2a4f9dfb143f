"""Settings that open something, as `weir doctor` says it."""

from pathlib import Path
from typing import Any

import pytest
from doctor_kit import NOWHERE, patient_of, told

from weir.doctor.checks.settings import check_settings
from weir.doctor.patient import Door

SECRET = {"sasl.password": "x"}


@pytest.mark.parametrize(
    ("proxy", "host", "expected", "words"),
    [
        ({}, NOWHERE[0], "ok", "no setting opens"),
        ({"protect_topics": False}, NOWHERE[0], "error", "proxy.protect_topics"),
        ({"alter_cluster": "allow"}, NOWHERE[0], "warning", "proxy.alter_cluster"),
        ({"alter_client_quotas": "allow"}, NOWHERE[0], "warning", "proxy.alter_client_quotas"),
        ({"alter_client_quotas": "admins", "admins": ["a"]}, NOWHERE[0], "ok", "no setting opens"),
        ({"sasl_plain_without_tls": True}, NOWHERE[0], "ok", "no setting opens"),
        ({"sasl_plain_without_tls": True}, "10.0.0.1", "error", "proxy.sasl_plain_without_tls"),
    ],
)
def test_settings_of_the_proxy(proxy: dict[str, Any], host: str, expected: str, words: str) -> None:
    """Each is named."""
    doors = {"proxy": Door(section="proxy", address=(host, 1), given=True)}
    ((status, what),) = told(check_settings(patient_of(doors=doors, proxy=proxy)))
    assert (status, words in what) == (expected, True)


@pytest.mark.parametrize(
    ("bootstrap", "protocol", "expected"),
    [
        ("127.0.0.1:1", "", "ok"), ("localhost:1,[::1]:2", "PLAINTEXT", "ok"), ("b:1", "", "warning"),
        ("127.0.0.1:1,b:1", "sasl_plaintext", "warning"), ("b:1", "SASL_SSL", "ok"), ("b:1", "ssl", "ok"),
        ("nonsense", "", "warning"),
    ],
)  # fmt: skip
def test_plain_text_to_brokers_elsewhere(bootstrap: str, protocol: str, expected: str) -> None:
    """Who is on the way may change decisions."""
    client = {"security.protocol": protocol} if protocol else {}
    ((status, _),) = told(check_settings(patient_of(bootstrap=bootstrap, client_of=client)))
    assert status == expected


@pytest.mark.parametrize(
    ("mode", "client", "expected"),
    [
        (0o644, SECRET, "warning"), (0o600, SECRET, "ok"), (0o644, {}, "ok"),
        # A key itself, and those of a store and of tokens, were none.
        *((0o644, {name: "x"}, "warning") for name in (
            "ssl.key.pem", "ssl.keystore.password", "sasl.oauthbearer.assertion.private.key.passphrase",
        )),
    ],
)  # fmt: skip
def test_a_password_that_others_may_read(
    mode: int, client: dict[str, str], expected: str, tmp_path: Path
) -> None:
    """In the settings file."""
    file = tmp_path / "my weir.yaml"
    file.write_text("kafka: {}")
    file.chmod(mode)
    found = list(check_settings(patient_of(client_of=client, settings_file=str(file))))
    assert [str(each.status) for each in found] == [expected]
    mend = f"chown it to the user that Weir runs as, then chmod 600 '{file}'"
    assert found[0].mend == ("" if expected == "ok" else mend)
    # One part's is as good.
    found = list(check_settings(patient_of(logins={"job": client}, settings_file=str(file))))
    assert [str(each.status) for each in found] == [expected]
