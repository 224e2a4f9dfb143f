"""Tokens, and a Pulsar that checks them."""

import base64
import hashlib
import hmac
import json

KEY = b"a secret of thirty-two bytes, or more"
CLIENT_PLUGIN = "org.apache.pulsar.client.impl.auth.AuthenticationToken"
_PROVIDER = "org.apache.pulsar.broker.authentication.AuthenticationProviderToken"


def token(subject: str, key: bytes = KEY) -> str:
    """A JSON Web Token as Pulsar's own tool makes them."""

    def encoded(part: bytes) -> bytes:
        return base64.urlsafe_b64encode(part).rstrip(b"=")

    parts = (json.dumps({"alg": "HS256"}).encode(), json.dumps({"sub": subject}).encode())
    signed = b".".join(map(encoded, parts))
    return (signed + b"." + encoded(hmac.new(key, signed, hashlib.sha256).digest())).decode()


def checking(*users: str) -> dict[str, str]:
    """Settings of a broker that lets these in, who may do everything; root is itself."""
    return {
        "authenticationEnabled": "true",
        "authenticationProviders": _PROVIDER,
        "tokenSecretKey": f"data:;base64,{base64.b64encode(KEY).decode()}",
        "authorizationEnabled": "true",
        "superUserRoles": ",".join(("root", *users)),
        "brokerClientAuthenticationPlugin": CLIENT_PLUGIN,
        "brokerClientAuthenticationParameters": f"token:{token('root')}",
    }
