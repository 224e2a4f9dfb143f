"""Settings of the proxy of an admin API (section `http:` of weir.yaml), declared once and frozen."""

from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator

from enforcer.core.security.tls import UpstreamTlsSettings
from enforcer.http.relay.upstream import Address, BadAddress
from enforcer.http.rules import Rule
from streaming.policy.settings import Settings, setting
from streaming.policy.validation import expected, wrong

_UPSTREAM_EXPECTED = "http://HOST:PORT or https://HOST:PORT, with a path if it has one"


def _upstream(text: str) -> str:
    try:
        return str(Address.of_url(text)) if text else text
    except BadAddress as bad:
        raise wrong(f"is no address: {bad}; expected {_UPSTREAM_EXPECTED}") from None


UpstreamUrl = Annotated[str, AfterValidator(_upstream), expected(_UPSTREAM_EXPECTED)]


class Table(StrEnum):
    """Rules that are built in."""

    PULSAR = "pulsar"
    NONE = "none"


class HttpSettings(Settings):
    """Settings of one proxy of an admin API."""

    upstream: UpstreamUrl = setting(
        "",
        "URL of an admin API to stand in front of, such as Pulsar's http://broker:8080; empty: none; "
        "--upstream wins over it",
    )
    upstream_tls: UpstreamTlsSettings | None = setting(
        None, "whom to trust of an https upstream; absent: CAs that browsers know"
    )
    id: str = setting(
        "", "name of this enforcer in events; empty: made from the host name and the port of the admin API"
    )
    table: Table = setting(
        Table.PULSAR, "built-in rules of what changes partitions, after those of http.rules: pulsar or none"
    )
    rules: list[Rule] = setting([], "further such rules, see conf/examples/http_kafka_rest.yaml")
    wait_ms: int = setting(
        0,
        "a request that is over its quota waits so long rather than being refused (429), ms; to be well below"
        " the clients' own limits",
        minimum=0,
        maximum=60_000,
    )
    credential_path: str = setting(
        "/admin/v2/clusters",
        "path of the upstream that is asked (GET) whether it knows a credential, before its user is charged",
    )
    token_claim: str = setting("sub", "claim of a token that names the user, as the upstream has it")
    allowed_hosts: list[str] = setting(
        [],
        "hosts that the upstream may send a request on to (307, 308), as HOST or HOST:PORT, with * for "
        "anything; its own host, at any port, always",
    )
    binary_address: str = setting(
        "",
        "HOST:PORT that answers to lookups of topics tell clients: of our own proxy of Pulsar's binary "
        "protocol, by TLS where pulsar.tls is set; empty: such lookups are refused; --binary-address wins "
        "over it",
    )
