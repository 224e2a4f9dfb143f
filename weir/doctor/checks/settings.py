"""Checks of the settings themselves: what they let others do that nobody meant to."""

import os
import shlex
import stat
from collections.abc import Iterator
from typing import Final

from enforcer.core.settings import Alter
from weir.doctor.checks.doors import beyond
from weir.doctor.findings import Finding, error, ok, warning
from weir.doctor.patient import Patient
from weir.foreground import host_port

_OF_TOKENS: Final = "sasl.oauthbearer.assertion.private.key"
_SECRETS: Final = (
    "sasl.password", "ssl.key.password", "ssl.key.pem", "ssl.keystore.password",
    "sasl.oauthbearer.client.secret", f"{_OF_TOKENS}.passphrase", f"{_OF_TOKENS}.pem",
)  # fmt: skip
"""What librdkafka hides in its own log."""
_OTHERS: Final = stat.S_IRGRP | stat.S_IROTH
_CLEAR: Final = ("plaintext", "sasl_plaintext")


def check_settings(patient: Patient) -> Iterator[Finding]:
    """Each that opens something."""
    found = [*_of_proxy(patient), *_of_client(patient)]
    yield from found or [ok("no setting opens what is shut by default")]


def _of_proxy(patient: Patient) -> Iterator[Finding]:
    proxy = patient.proxy
    if not proxy.protect_topics:
        what = "proxy.protect_topics is false: clients of the proxy may read and write Weir's topics"
        yield error(what, "set proxy.protect_topics: true")
    for name in ("alter_client_quotas", "alter_cluster"):
        if getattr(proxy, name) is Alter.ALLOW:
            what = f"proxy.{name} is allow: any client may do it through the proxy"
            yield warning(what, f"set proxy.{name}: admins, and proxy.admins")
    if proxy.sasl_plain_without_tls and beyond(patient.doors["proxy"].address):
        what = "proxy.sasl_plain_without_tls is true: passwords of clients can be read on the network"
        yield error(what, "set proxy.tls, and proxy.sasl_plain_without_tls: false")


def _of_client(patient: Patient) -> Iterator[Finding]:
    client, path = patient.cluster.client, patient.settings_file
    if client.get("security.protocol", _CLEAR[0]).lower() in _CLEAR and _far(patient.cluster.bootstrap):
        what = "Weir's own connections to the brokers are in plain text, to be read and changed on the way"
        yield warning(what, "set kafka.client security.protocol: SASL_SSL")
    logins = (client, *patient.logins.values())
    secret = any(each.get(name) for each in logins for name in _SECRETS)
    if path and secret and os.stat(path).st_mode & _OTHERS:
        what = f"{path} holds a password, or names its file, and others on this machine may read it"
        # Beforehand: of a file of root, as an installation has it, the service could not read it any more.
        yield warning(what, f"chown it to the user that Weir runs as, then chmod 600 {shlex.quote(path)}")


def _far(bootstrap: str) -> bool:
    try:
        return any(beyond(host_port(address)) for address in bootstrap.split(","))
    except ValueError:
        return True
