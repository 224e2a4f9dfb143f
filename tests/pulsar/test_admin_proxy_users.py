"""The admin proxy before a Pulsar with authentication: whose quota a request is charged to."""

from pathlib import Path

import pytest
from admin_process_kit import Admin as Weir
from admin_process_kit import pulsar_admin
from broker_fixtures import apart
from cluster_kit import Cluster
from pulsar_kit import Admin, fresh
from pulsar_tokens import CLIENT_PLUGIN, checking, token

from weir.stack.pulsar import LocalPulsar


@pytest.mark.soak
def test_users_are_charged_by_their_tokens(cluster: Cluster, tmp_path: Path) -> None:
    """Each their own quota; a forged token is refused by Pulsar and uses nobody's quota up."""
    with (
        LocalPulsar(tmp_path / "pulsar", token=token("root"), properties=checking("ann", "bob")) as pulsar,
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
                tmp_path, weir.url, "--auth-plugin", CLIENT_PLUGIN, "--auth-params", f"token:{token('ann')}",
                "topics", "create-partitioned-topic", f"public/default/{fresh('users')}", "-p", "3",
            )  # fmt: skip
            assert done.returncode == 1 and "user=ann" in done.stderr
