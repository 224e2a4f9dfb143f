"""The admin proxy before a Pulsar with authentication: whose quota a request is charged to."""

import base64
import hashlib
import hmac
import json
from pathlib import Path

import pytest
from admin_process_kit import Admin as Weir
from admin_process_kit import pulsar_admin
from broker_fixtures import apart, cluster
from cluster_kit import Cluster
from pulsar_kit import Admin, fresh, running_pulsar

__all__ = ["cluster"]
KEY = b"a secret of thirty-two bytes, or more"
PLUGINS = "org.apache.pulsar.broker.authentication.AuthenticationProviderToken"
CLIENT = "org.apache.pulsar.client.impl.auth.AuthenticationToken"


def token(subject: str, key: bytes = KEY) -> str:
    """A JSON Web Token as Pulsar's own tool makes them."""

    def encoded(part: bytes) -> bytes:
        return base64.urlsafe_b64encode(part).rstrip(b"=")

    parts = (json.dumps({"alg": "HS256"}).encode(), json.dumps({"sub": subject}).encode())
    signed = b".".join(map(encoded, parts))
    return (signed + b"." + encoded(hmac.new(key, signed, hashlib.sha256).digest())).decode()


@pytest.mark.soak
def test_users_are_charged_by_their_tokens(cluster: Cluster, tmp_path: Path) -> None:
    """Each their own quota; a forged token is refused by Pulsar and uses nobody's quota up."""
    properties = {
        "authenticationEnabled": "true",
        "authenticationProviders": PLUGINS,
        "tokenSecretKey": f"data:;base64,{base64.b64encode(KEY).decode()}",
        "authorizationEnabled": "true",
        "superUserRoles": "root,ann,bob",
        "brokerClientAuthenticationPlugin": CLIENT,
        "brokerClientAuthenticationParameters": f"token:{token('root')}",
    }
    with (
        running_pulsar(tmp_path / "pulsar", token=token("root"), properties=properties) as pulsar,
        apart(cluster, "users") as own,
    ):
        own.policies.put(
            "quotas[user=<default>]", {"controller_mutation_rate": 0.1, "controller_mutation_burst": 5}
        )
        words = ("--upstream", pulsar.admin)
        with Weir(own.kafka.bootstrap, tmp_path / "admin", own.topics.prefix, *words) as weir:

            def create(bearer: str) -> int:
                path = f"persistent/public/default/{fresh('users')}/partitions"
                return Admin(weir.url, bearer).ask("PUT", path, 9).status

            assert create(token("ann", b"x" * 32)) == 401
            assert create("") == 401
            assert create(token("ann")) == 204
            assert create(token("ann")) == 429
            assert create(token("ann", b"x" * 32)) == 401
            assert create(token("bob")) == 204
            # Who knows nobody's name is held by what is nobody's.
            refused = Admin(weir.url, token("bob")).ask("PUT", "persistent/public/default/x/partitions", 1)
            assert refused.status == 429 and "user=bob" in refused.body["reason"]
            done = pulsar_admin(
                tmp_path, weir.url, "--auth-plugin", CLIENT, "--auth-params", f"token:{token('ann')}",
                "topics", "create-partitioned-topic", f"public/default/{fresh('users')}", "-p", "3",
            )  # fmt: skip
            assert done.returncode == 1 and "user=ann" in done.stderr
