"""How long certificates are good: of the files that settings name, and of any in DER."""

import re
import ssl
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from weir.doctor.findings import Finding, error, ok, warning
from weir.doctor.patient import Patient

SOON_DAYS: Final = 30
LAST_DAYS: Final = 7
"""So late it is an error: who looks at the exit status alone hears of it before it is too late."""
_DAY_S: Final = 86_400
_PEM: Final = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_FILE_MAX: Final = 16 * 1024 * 1024
_SEQUENCE, _VERSION, _UTC_TIME = 0x30, 0xA0, 0x17
_PROBE: Final = "probe"
_OF_TLS: Final = (
    ("tls", "client_ca", ("proxy", "pulsar", "admin")), ("upstream_tls", "ca", ("proxy", "pulsar", "http")),
)  # fmt: skip
_RENEW: Final = "put a new certificate there: parts read files again when they change"


class Validity(NamedTuple):
    """From when to when a certificate is good, s since the epoch."""

    begins_s: float
    ends_s: float


def validity(der: bytes) -> Validity:
    """Of a certificate (RFC 5280 4.1); raises ValueError if it is none."""
    try:
        certificate = _inside(der, 0, _SEQUENCE)
        offset = _inside(der, certificate, _SEQUENCE)
        if der[offset] == _VERSION:
            offset = _element(der, offset)[2]
        # Serial number, algorithm of the signature and issuer stand before it.
        for _ in range(3):
            offset = _element(der, offset)[2]
        begins = _inside(der, offset, _SEQUENCE)
        return Validity(_time(der, begins), _time(der, _element(der, begins)[2]))
    except IndexError:
        raise ValueError("no certificate") from None


def _element(der: bytes, offset: int) -> tuple[int, int, int]:
    """Tag, first byte of the content, and the end of an element."""
    tag, length, begin = der[offset], der[offset + 1], offset + 2
    if length & 0x80:
        size = length & 0x7F
        length, begin = int.from_bytes(der[begin : begin + size], "big"), begin + size
    if begin + length > len(der):
        raise ValueError("no certificate")
    return tag, begin, begin + length


def _inside(der: bytes, offset: int, wanted: int) -> int:
    tag, begin, _ = _element(der, offset)
    if tag != wanted:
        raise ValueError("no certificate")
    return begin


def _time(der: bytes, offset: int) -> float:
    tag, begin, end = _element(der, offset)
    text = der[begin:end].decode("ascii")
    if tag == _UTC_TIME:
        # Years of two digits are those from 1950 on (RFC 5280 4.1.2.5.1).
        text = ("19" if text >= "5" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def judged(what: str, found: Validity, now_s: float) -> Finding:
    """What is to be said of a certificate."""
    days = (found.ends_s - now_s) / _DAY_S
    date = datetime.fromtimestamp(found.ends_s, UTC).strftime("%Y-%m-%d")
    if days <= 0:
        return error(f"{what} ended on {date}", _RENEW)
    if found.begins_s > now_s:
        return error(f"{what} is not good yet", "set the clock (NTP), or take one that is good now")
    if days <= SOON_DAYS:
        how_bad = error if days <= LAST_DAYS else warning
        return how_bad(f"{what} ends in {int(days)} days, on {date}", _RENEW)
    return ok(f"{what} is good until {date}")


def certificates_in(path: str) -> list[bytes]:
    """In DER, those of a file in PEM; raises OSError or ValueError if it cannot be read."""
    with Path(path).open("rb") as file:
        text = file.read(_FILE_MAX).decode("latin-1")
    return [ssl.PEM_cert_to_DER_cert(pem) for pem in _PEM.findall(text)]


def check_certificates(patient: Patient) -> Iterator[Finding]:
    """Of the files that the settings name."""
    files = _files(patient)
    for path, (name, authorities) in files.items():
        yield _of_file(path, name, authorities)
    if not files:
        yield ok("the settings name no file of certificates")


def _files(patient: Patient) -> Mapping[str, tuple[str, bool]]:
    """By path: the setting, and whether it holds CAs, of which one that is good will do."""
    found: dict[str, tuple[str, bool]] = {}

    def add(path: str, name: str, authorities: bool) -> None:
        if path:
            found.setdefault(path, (name, authorities))

    for key, ca, sections in _OF_TLS:
        for section in sections:
            tls = getattr(getattr(patient, section), key)
            if tls is not None:
                add(tls.certificate, f"{section}.{key}.certificate", False)
                add(getattr(tls, ca), f"{section}.{key}.{ca}", True)
    clients = {f"kafka.clients.{part}": client for part, client in patient.logins.items()}
    for section, client in {"kafka.client": patient.cluster.client, **clients}.items():
        add(client.get("ssl.certificate.location", ""), f"{section} ssl.certificate.location", False)
        authorities = client.get("ssl.ca.location", "")
        # librdkafka takes a folder, too, and a word by which it looks for the system's.
        if authorities != _PROBE and not Path(authorities).is_dir():
            add(authorities, f"{section} ssl.ca.location", True)
    return found


def _of_file(path: str, name: str, authorities: bool) -> Finding:
    try:
        found = [validity(der) for der in certificates_in(path)]
    except (OSError, ValueError) as failure:
        return warning(f"{name}: {path} cannot be read: {failure}", "run it as the user of that part")
    if not found:
        return warning(f"{name}: {path} has no certificate in it", "put it there, in PEM")
    last = (max if authorities else min)(found, key=lambda one: one.ends_s)
    return judged(f"{name}: {path}", last, time.time())
