"""How long certificates are good, as `weir doctor` says it."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from doctor_kit import patient_of, told
from tls_kit import Authority, Pair

from weir.doctor.checks.certificates import Validity, check_certificates, judged, validity

DAY = timedelta(days=1)
NOW = datetime.now(UTC)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """A CA of our own."""
    return Authority(tmp_path / "ca")


def served(pair: Pair, **more: str) -> dict[str, Any]:
    """The section `proxy` with it."""
    return {"tls": {"certificate": pair.certificate, "key": pair.key, **more}}


@pytest.mark.parametrize("year", [2024, 2049, 2050, 2262])
def test_times_are_those_that_others_read(year: int, authority: Authority) -> None:
    """Of both forms that times have in certificates (RFC 5280 4.1.2.5)."""
    pair = authority.issue("a.test", not_after=datetime(year, 2, 3, 4, 5, 6, tzinfo=UTC))
    pem = Path(pair.certificate).read_bytes()
    (read,) = x509.load_pem_x509_certificates(pem)
    found = validity(ssl.PEM_cert_to_DER_cert(pem.decode()))
    assert found.begins_s == read.not_valid_before_utc.timestamp()
    assert found.ends_s == read.not_valid_after_utc.timestamp() == datetime(
        year, 2, 3, 4, 5, 6, tzinfo=UTC
    ).timestamp()  # fmt: skip


def test_what_is_no_certificate_is_said_to_be_none(authority: Authority) -> None:
    """Cut anywhere, or changed: ValueError and nothing else."""
    der = ssl.PEM_cert_to_DER_cert(Path(authority.server().certificate).read_text())
    for cut in range(200):
        with pytest.raises(ValueError, match="no certificate"):
            validity(der[:cut])
    for wrong in (b"", b"\x30\x80", b"\x30\x84\xff\xff\xff\xff", b"nonsense" * 99):
        with pytest.raises(ValueError, match="no certificate"):
            validity(wrong)


@pytest.mark.parametrize(
    ("left", "status", "words"),
    [
        (-1, "error", "it ended on 2027-01-14"), (0.5, "error", "it ends in 0 days"),
        (7, "error", "it ends in 7 days, on 2027-01-22"), (8, "warning", "it ends in 8 days"),
        (30, "warning", "it ends in 30 days"), (31, "ok", "it is good until 2027-02-15"),
    ],
)  # fmt: skip
def test_how_near_the_end_is(left: float, status: str, words: str) -> None:
    """Warned of for 30 days, an error in the last week."""
    now_s = 1_800_000_000.0
    found = judged("it", Validity(0, now_s + left * 86_400), now_s)
    assert found.status == status and words in found.what and bool(found.mend) == (status != "ok")


def test_one_that_is_not_good_yet() -> None:
    """The clock is wrong, or the certificate."""
    assert "not good yet" in judged("it", Validity(2e9, 3e9), 1e9).what


def test_files_of_all_sections(authority: Authority, tmp_path: Path) -> None:
    """Certificates and CAs, each file once; of CAs one that lasts will do."""
    soon, lasting = authority.issue("a.test", not_after=NOW + 10 * DAY), authority.server()
    both = tmp_path / "cas.pem"
    both.write_text(Path(soon.certificate).read_text() + Path(authority.ca).read_text())
    gone = str(tmp_path / "gone.pem")
    client = {"ssl.ca.location": str(both), "ssl.certificate.location": gone}
    proxy = served(soon, client_ca=authority.ca, client_auth="required")
    proxy["upstream_tls"] = {"ca": authority.ca, **dict(zip(("certificate", "key"), lasting, strict=True))}
    of_job = {"job": {"ssl.certificate.location": authority.server().certificate}}
    beyond = tmp_path / "upstream.pem"
    beyond.write_text(Path(authority.ca).read_text())
    http = {"upstream_tls": {"ca": str(beyond)}}
    asked = patient_of(proxy=proxy, admin=served(soon), http=http, client_of=client, logins=of_job)
    found = told(check_certificates(asked))
    assert [(status, what.partition(": ")[0]) for status, what in found] == [
        ("warning", "proxy.tls.certificate"),
        ("ok", "proxy.tls.client_ca"),
        ("ok", "proxy.upstream_tls.certificate"),
        ("ok", "http.upstream_tls.ca"),
        ("warning", "kafka.client ssl.certificate.location"),
        ("ok", "kafka.client ssl.ca.location"),
        ("ok", "kafka.clients.job ssl.certificate.location"),
    ]
    assert f"{gone} cannot be read" in found[4][1]


def test_the_first_of_a_chain_to_end_counts(authority: Authority, tmp_path: Path) -> None:
    """Clients refuse all of it then."""
    soon, lasting = authority.issue("b.test", not_after=NOW + 10 * DAY), authority.server()
    with Path(lasting.certificate).open("a") as file:
        file.write(Path(soon.certificate).read_text())
    ((status, what),) = told(check_certificates(patient_of(proxy=served(lasting))))
    # The hours of today are no day.
    assert status == "warning" and "ends in 9 days" in what


def test_without_certificates() -> None:
    """One line."""
    assert told(check_certificates(patient_of())) == [("ok", "the settings name no file of certificates")]


@pytest.mark.parametrize("where", ["probe", "folder"])
def test_cas_that_are_no_file_are_the_librarys_to_find(where: str, tmp_path: Path) -> None:
    """librdkafka takes both."""
    client = {"ssl.ca.location": str(tmp_path) if where == "folder" else where}
    assert told(check_certificates(patient_of(client_of=client)))[0][0] == "ok"


def test_a_file_without_one(authority: Authority, tmp_path: Path) -> None:
    """It changed since the settings were read."""
    pair = authority.server()
    asked = patient_of(proxy=served(pair))
    Path(pair.certificate).write_text("nothing")
    ((status, what),) = told(check_certificates(asked))
    assert (status, what) == (
        "warning", f"proxy.tls.certificate: {pair.certificate} has no certificate in it"
    )  # fmt: skip
