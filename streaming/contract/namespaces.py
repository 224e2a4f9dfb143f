"""The namespace of a topic, read from its name.

Kafka has no namespaces, so a pattern says how a name is made up, `tenant.namespace.topic` by default:

>>> Namespaces("tenant.namespace.topic").of("acme.orders.eu.created")
'acme/orders'
>>> Namespaces("tenant.namespace.topic").of("__consumer_offsets") is None
True

Pulsar's own names follow one too:

>>> Namespaces("persistent://tenant/namespace/topic").of("persistent://acme/orders/created")
'acme/orders'

Policies of topics have Pulsar's full names, and so does what is delivered (docs/contract.md 3.3):

>>> Namespaces("tenant.namespace.topic").full_name("acme.orders.eu.created")
'persistent://acme/orders/eu.created'
>>> Namespaces("tenant.namespace.topic").full_name("clicks")
'persistent://public/default/clicks'
"""

import re
from typing import Final

from streaming.contract.errors import WeirError
from streaming.contract.names import TOPIC, topic_of

_WORDS: Final = ("tenant", "namespace", "topic")
_SPLIT: Final = re.compile("(tenant|namespace|topic)")


class Namespaces:
    """Reads topic names by a pattern.

    Args:
        pattern: the words tenant, namespace and topic in this order, with text around and between them.
            Tenant and namespace end at the first character of the text after them; the topic is the rest.

    Raises:
        WeirError: the pattern lacks a word, repeats one, or has nothing between two of them.
    """

    def __init__(self, pattern: str) -> None:
        self._expression = re.compile(_expression(pattern), re.DOTALL)

    def of(self, topic: str) -> str | None:
        """`TENANT/NAMESPACE` of a topic; None: its name is not made up so, it belongs to no namespace."""
        match = self._expression.fullmatch(topic)
        return None if match is None else f"{match['tenant']}/{match['namespace']}"

    def full_name(self, topic: str) -> str:
        """What Pulsar would call a topic; one that belongs to no namespace stands in Pulsar's default one."""
        match = self._expression.fullmatch(topic)
        if match is None:
            return topic if TOPIC.fullmatch(topic) else topic_of(topic)
        return f"persistent://{match['tenant']}/{match['namespace']}/{match['topic']}"


def _expression(pattern: str) -> str:
    parts = _SPLIT.split(pattern)
    between, words = parts[::2], parts[1::2]
    if tuple(words) != _WORDS or not between[1] or not between[2]:
        raise WeirError(
            f"proxy.namespace_pattern is {pattern!r}; expected the words tenant, namespace and topic once "
            "each, in this order, with text between them, such as tenant.namespace.topic"
        )
    tenant, namespace = (
        f"(?P<{word}>[^{re.escape(text[0])}/]+)" for word, text in zip(_WORDS[:2], between[1:3], strict=True)
    )
    before, first, second, after = map(re.escape, between)
    return f"{before}{tenant}{first}{namespace}{second}(?P<topic>.+){after}"
