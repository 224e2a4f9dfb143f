"""Which entities a token may see: a tenant's those of its tenants alone."""

from collections.abc import Callable

from enforcer.control.access.auth import groups_seen
from enforcer.control.access.tokens import Grant, Role
from enforcer.control.answers.ladder import split_subscription
from enforcer.control.answers.shown import all_seen
from enforcer.control.entities.laws import Entity, Law
from enforcer.control.groups import Entries, Refusal
from streaming.contract.errors import BadEvent
from streaming.contract.names import namespace_of
from streaming.policy.dispatch_limits import parse_dispatch_group


def seen_by(grant: Grant, entries: Entries) -> Callable[[Entity], bool]:
    """Whether a token shows an entity.

    Args:
        grant: the token.
        entries: the policies in force.
    """
    if grant.role is not Role.TENANT:
        return all_seen
    groups = frozenset(groups_seen(grant, entries))

    def seen(entity: Entity) -> bool:
        if entity.law is Law.SHARES:
            if entity.name in groups:
                return True
            names = parse_dispatch_group(entity.name)
            return names is not None and _tenant(names[0]) in grant.tenants
        if entity.law is Law.DISPATCH:
            return _tenant(split_subscription(entity.name)[0]) in grant.tenants
        # Users of Kafka and requests in flight are nobody's.
        return entity.law is Law.BACKLOG and _tenant(entity.name) in grant.tenants

    return seen


def check_seen(grant: Grant, entries: Entries, entity: Entity) -> None:
    """Raises Refusal (403): the entity is somebody else's; arguments as of seen_by."""
    if not seen_by(grant, entries)(entity):
        own = ", ".join(sorted(grant.tenants))
        raise Refusal(403, f"Don't have admin permissions: {grant.name} is for what belongs to {own}")


def _tenant(topic: str) -> str:
    try:
        return namespace_of(topic).partition("/")[0]
    except BadEvent:
        return ""
