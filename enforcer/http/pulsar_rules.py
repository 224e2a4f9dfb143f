"""The rules for Pulsar's admin API, v2 and v1; names of operations are those of Pulsar's own resources.

Topics that Pulsar creates by itself have no rule: what is published, subscribed or looked up over HTTP does
not say how many partitions come of it, which the namespace's policy does. Where they must not pass the quota,
the policy forbids them (`autoTopicCreation`), as the quota of a company asks for.
"""

from typing import Final

from enforcer.http.rules import Cost, Rule

_DOMAIN: Final = "{domain:persistent|non-persistent}"
_VERSIONS: Final = (
    ("/admin/v2", "{tenant}/{namespace}", "topics"),
    ("/admin", "{tenant}/{cluster}/{namespace}", "destinations"),
)
"""Where each version begins, how it names a namespace, and what it calls the list of one's topics."""
_FIELD: Final = "partitions"


def _rules_of(base: str, namespace: str, topics: str) -> list[Rule]:
    topic = f"{base}/{_DOMAIN}/{namespace}/{{topic}}"
    name = f"{{domain}}://{namespace}/{{topic}}"
    partitions = f"{base}/{{domain}}/{namespace}/{{topic}}/partitions"

    def rule(method: str, path: str, operation: str, cost: Cost, current: str = "") -> Rule:
        needs_field = cost in (Cost.BODY, Cost.GROWTH)
        return Rule(
            method=method,
            path=path,
            operation=operation,
            name=name,
            cost=cost,
            number=0 if needs_field else 1,
            field=_FIELD if needs_field else "",
            current=current,
            current_field=_FIELD if current else "",
        )

    return [
        rule("PUT", topic, "createNonPartitionedTopic", Cost.CONSTANT),
        rule("PUT", f"{topic}/partitions", "createPartitionedTopic", Cost.BODY),
        rule("POST", f"{topic}/partitions", "updatePartitionedTopic", Cost.GROWTH, partitions),
        rule("POST", f"{topic}/createMissedPartitions", "createMissedPartitions", Cost.CURRENT, partitions),
        rule("DELETE", topic, "deleteTopic", Cost.CONSTANT),
        rule("DELETE", f"{topic}/partitions", "deletePartitionedTopic", Cost.CURRENT, partitions),
        Rule(
            method="DELETE",
            path=f"{base}/namespaces/{namespace}",
            operation="deleteNamespace",
            name=namespace,
            cost=Cost.CURRENT,
            # Without a mode only those that are stored are listed; all are deleted.
            current=f"{base}/namespaces/{namespace}/{topics}?mode=ALL",
        ),
    ]


PULSAR: Final = tuple(rule for version in _VERSIONS for rule in _rules_of(*version))
