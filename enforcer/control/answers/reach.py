"""Which entities a token may see: a tenant's those of its tenants alone."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from enforcer.control.access.auth import groups_seen
from enforcer.control.access.tokens import Grant, Role
from enforcer.control.entities.laws import Entity, Law
from enforcer.control.entities.table import EntityTable
from enforcer.control.groups import Entries, Refusal


class Reach(NamedTuple):
    """What a tenant's token shows.

    Attributes:
        tenants: all that is about their topics,
        groups: and these.
    """

    tenants: frozenset[str]
    groups: frozenset[str]

    def has(self, entity: Entity) -> bool:
        """Whether an entity is shown."""
        return entity.tenant in self.tenants or (entity.law is Law.SHARES and entity.name in self.groups)

    def rows(self, table: EntityTable) -> NDArray[np.bool_]:
        """Of each row of a table whether it is shown; a stream asks each second, of 100,000 maybe."""
        shown = np.isin(table.columns["tenant"][: len(table)], [hash(tenant) for tenant in self.tenants])
        groups = (table.rows.get(Entity(Law.SHARES, group)) for group in self.groups)
        shown[[row for row in groups if row is not None]] = True
        return shown


def seen_by(grant: Grant, entries: Entries) -> Reach | None:
    """What a token shows by the policies in force; None: all."""
    if grant.role is not Role.TENANT:
        return None
    return Reach(grant.tenants, frozenset(groups_seen(grant, entries)))


def check_seen(grant: Grant, entries: Entries, entity: Entity) -> None:
    """Raises Refusal (403): the entity is somebody else's."""
    reach = seen_by(grant, entries)
    if reach is not None and not reach.has(entity):
        own = ", ".join(sorted(grant.tenants))
        raise Refusal(403, f"Don't have admin permissions: {grant.name} is for what belongs to {own}")
