"""Checks of where parts listen: TLS, the certificate that is really served, tokens of the admin API."""

import asyncio
import re
import ssl
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from enforcer.control.access.auth import is_loopback
from enforcer.core.security.doors import DoorSettings, ProxyProtocol
from enforcer.core.security.tls import ClientAuth, TlsSettings
from streaming.contract.topics import address_text
from weir.doctor.checks.certificates import certificates_in, judged, validity
from weir.doctor.checks.visit import connected
from weir.doctor.findings import Finding, Status, error, ok, warning
from weir.doctor.patient import Address, Door, Patient
from weir.health import here, unverified

KNOCK_S: Final = 3.0
METRICS: Final = "metrics"
_HEADER: Final = b"PROXY UNKNOWN\r\n"
"""Of the PROXY protocol: it leaves the address as it is."""
_ASKED: Final = "/admin/v2/resourcegroups"
_STATUS: Final = re.compile(rb"HTTP/1\.\d (\d{3})\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Knock:
    """What a door answered.

    Attributes:
        open: somebody listens.
        certificate: that was shown, DER; None: no TLS was spoken, or it was refused before.
        refused: why TLS was refused, in OpenSSL's words; empty: it was not, or none was spoken.
    """

    open: bool
    certificate: bytes | None = None
    refused: str = ""


async def knock(address: Address, header: bytes, server_name: str) -> Knock:
    """Connect, and try TLS, behind the header and by that name (SNI); says nothing beyond that."""
    is_open, certificate, refused = False, None, ""
    with suppress(OSError, ValueError):
        async with asyncio.timeout(KNOCK_S), connected(_here(address)) as (_, writer):
            is_open = True
            writer.write(header)
            try:
                await writer.start_tls(unverified(), server_hostname=server_name)
            except ssl.SSLError as failure:
                # The other side's alert is a word of TLS; anything else is what was no TLS.
                refused = failure.reason if "ALERT" in (failure.reason or "") else ""
                raise
            certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    return Knock(open=is_open, certificate=certificate, refused=refused)


def knocks(patient: Patient) -> dict[str, Knock]:
    """At each door."""

    async def all_at_once() -> list[Knock]:
        return await asyncio.gather(*(_at(name, door, patient) for name, door in patient.doors.items()))

    return dict(zip(patient.doors, asyncio.run(all_at_once()), strict=True))


async def _at(name: str, door: Door, patient: Patient) -> Knock:
    settings = settings_of(door, patient)
    header = _HEADER if _is_announced(name, settings) else b""
    domain = settings.tls.sni if settings.tls is not None else ""
    return await knock(door.address, header, domain or _here(door.address)[0])


def _is_announced(name: str, settings: DoorSettings) -> bool:
    return name != METRICS and settings.proxy_protocol is ProxyProtocol.REQUIRED


def settings_of(door: Door, patient: Patient) -> DoorSettings:
    """The section for this door."""
    section: DoorSettings = getattr(patient, door.section)
    return section


def check_doors(patient: Patient) -> Iterator[Finding]:
    """Each: does somebody listen, is it TLS where others can hear it, is its certificate good."""
    empty = []
    for name, found in patient.once(knocks).items():
        door = patient.doors[name]
        if found.open:
            where, settings = f"{name} at {address_text(*door.address)}", settings_of(door, patient)
            silent = settings.tls is not None and found.certificate is None and not found.refused
            if silent and settings.proxy_protocol_from and _is_announced(name, settings):
                yield ok(f"{where} is for {door.section}.proxy_protocol_from: TLS is not seen from here")
            else:
                yield _of_door(where, door, found, settings.tls)
        elif door.given:
            mend = "start that part, or say where it listens, as to `weir up`"
            yield warning(f"nobody listens for {name} at {address_text(*door.address)}", mend)
        else:
            empty.append(f"{name} at {address_text(*door.address)}")
    if empty:
        yield ok(f"nobody listens, and none was said to: {', '.join(empty)}")


def _of_door(where: str, door: Door, found: Knock, tls: TlsSettings | None) -> Finding:
    if found.certificate is not None:
        return _of_certificate(where, found.certificate, tls.certificate if tls is not None else "")
    if _demands_certificate(tls, found):
        return ok(f"{where} speaks TLS and demands a certificate")
    if found.refused:
        return warning(f"{where} speaks TLS, but refused this machine's: {found.refused}", "look at its log")
    if tls is not None:
        mend = "restart that part with these settings; its log says what is wrong with its certificate"
        return error(f"{where} speaks no TLS, though {door.section}.tls is set", mend)
    if beyond(door.address):
        what = f"{where} listens beyond this machine in plain text, which can be read on the way"
        return warning(what, f"set {door.section}.tls")
    return ok(f"{where} is in plain text, for this machine alone")


def _demands_certificate(tls: TlsSettings | None, found: Knock) -> bool:
    """Whether it speaks TLS, but to nobody without a certificate, as its settings say."""
    spoken = found.certificate is not None or found.refused
    return bool(spoken) and tls is not None and tls.client_auth is ClientAuth.REQUIRED


def _of_certificate(where: str, served: bytes, file: str) -> Finding:
    """What is served, and whether it is what stands in the file."""
    try:
        found = judged(f"{where} serves TLS; its certificate", validity(served), time.time())
    except ValueError:
        return warning(f"{where} serves a certificate that cannot be read", "look at it: openssl s_client")
    if found.status is Status.OK and file and served not in _in(file):
        return warning(f"{where} does not serve the certificate of {file}", "the log of that part says why")
    return found


def _in(file: str) -> list[bytes]:
    try:
        return certificates_in(file)
    except (OSError, ValueError):
        # What is wrong with files is said of certificates.
        return []


def check_admin(patient: Patient) -> Iterator[Finding]:
    """Whether the admin API asks who somebody is."""
    door, found = patient.doors["admin"], patient.once(knocks)["admin"]
    where = f"the admin API at {address_text(*door.address)}"
    if not found.open:
        yield ok(f"nobody listens for {where}")
        return
    if patient.admin.proxy_protocol is ProxyProtocol.REQUIRED:
        yield ok(f"{where} demands tokens behind a load balancer, whatever is configured")
        return
    status = asyncio.run(_status(door.address, bool(found.certificate or found.refused)))
    if status is None and _demands_certificate(patient.admin.tls, found):
        yield ok(f"{where} demands a certificate")
    elif status == HTTPStatus.UNAUTHORIZED:
        yield ok(f"{where} answers nobody without a token")
    elif status not in (HTTPStatus.OK, HTTPStatus.FORBIDDEN):
        said = "does not answer" if status is None else f"answers with status {status}"
        yield warning(f"{where} {said}", "look at its log")
    elif beyond(door.address):
        what = f"{where} has no tokens: everybody on that machine may change limits, and nobody else gets in"
        yield warning(what, "set admin.tokens_file (docs/admin_api.md), or listen on 127.0.0.1")
    else:
        yield ok(f"{where} has no tokens and answers this machine alone")


async def _status(address: Address, tls: bool) -> int | None:
    """What it answers to somebody without a token."""
    at = _here(address)
    with suppress(OSError, ValueError):
        # Of all of it: a limit of each read alone lets who answers byte by byte go on for ever.
        async with asyncio.timeout(KNOCK_S), connected(at, unverified() if tls else None) as (reader, writer):
            writer.write(f"GET {_ASKED} HTTP/1.1\r\nHost: {address_text(*at)}\r\n\r\n".encode())
            said = _STATUS.match(await reader.readline())
            return int(said[1]) if said else None
    return None


def beyond(address: Address) -> bool:
    """Whether others than this machine can connect there.

    >>> beyond(("127.0.0.1", 1)), beyond(("localhost", 1)), beyond(("0.0.0.0", 1)), beyond(("::1", 1))
    (False, False, True, False)
    """
    return not is_loopback(address[0])


def _here(address: Address) -> Address:
    return here(address[0]), address[1]
