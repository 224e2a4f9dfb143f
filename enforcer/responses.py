"""What is changed in broker responses on their way to the client."""

from typing import Final

from enforcer.addresses import REWRITTEN_KEYS, AddressMap, rewrite_addresses
from enforcer.messages import limit_api_versions
from enforcer.principal import SaslObserver
from enforcer.wire import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE, RequestHeader

SASL_KEYS: Final = frozenset({SASL_HANDSHAKE, SASL_AUTHENTICATE})
CHANGED_KEYS: Final = REWRITTEN_KEYS | SASL_KEYS | {API_VERSIONS}
"""APIs whose responses `for_client` must see; all others pass as they are."""


def for_client(
    header: RequestHeader, response: bytes, observer: SaslObserver, address_of: AddressMap
) -> bytes:
    """The response as the client may have it: our addresses, our versions; SASL is only watched.

    Args:
        header: of the request.
        response: the broker's.
        observer: of this connection.
        address_of: where clients go instead of a broker.

    Raises:
        WeirError: it cannot be read, or names a broker that we cannot stand for.
    """
    key, version = header.api_key, header.api_version
    if key == API_VERSIONS:
        return limit_api_versions(response, version)
    if key in SASL_KEYS:
        observer.on_response(response, header)
        return response
    return rewrite_addresses(key, version, response, address_of)
