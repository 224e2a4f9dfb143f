"""What was pushed, noted in Pulsar itself, so that a collector that starts knows its own limits again.

A change of a namespace's properties refills the publish buckets of all its topics, so notes stand in another
namespace, by default Pulsar's own. A note is written before the limits that it tells of: whatever happens in
between, each of them is then as the note says, or as it says that it was before.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import orjson

from streaming.collect.pulsar.limits import Rates, Slot
from streaming.collect.pulsar.rest import Rest, RestError, namespace_path
from streaming.contract.errors import WeirError
from streaming.contract.names import NAMESPACE

PREFIX: Final = "weir.limits."
_JOINT: Final = "~"
"""Between tenant and namespace in a property's name: in neither, and plain in a path."""


class Note(NamedTuple):
    """What a limiter of ours may hold.

    Attributes:
        after: once it was pushed.
        before: until then; None: nothing.
    """

    after: Rates
    before: Rates | None


class Notes:
    """The notes of one cluster.

    Args:
        namespace: where they stand.

    Raises:
        WeirError: no name of a namespace.
    """

    def __init__(self, rest: Rest, namespace: str) -> None:
        if not NAMESPACE.fullmatch(namespace):
            raise WeirError(f"collect_pulsar.notes_namespace: {namespace!r}; TENANT/NAMESPACE was expected")
        self._rest = rest
        self._namespace = namespace
        self._path = namespace_path(namespace)

    async def read(self) -> dict[Slot, Note]:
        """All notes; those that cannot be read are passed over, and what they tell of is not ours then.

        Raises:
            RestError: Pulsar does not tell them.
        """
        try:
            properties = await self._rest.get(f"{self._path}/properties", dict) or {}
        except RestError as failure:
            if not failure.absent:
                raise
            said = f"there is no namespace {self._namespace} to keep notes in; collect_pulsar.notes_namespace"
            raise RestError(f"{said} should name one without limits", failure.status) from failure
        found: dict[Slot, Note] = {}
        for name, text in properties.items():
            if name.startswith(PREFIX):
                found |= notes_in(text)
        return found

    async def write(self, namespace: str, notes: Mapping[Slot, Note]) -> None:
        """Note all of ours in one namespace, in place of what was noted of it.

        Raises:
            RestError: it is not noted, or not known to be.
        """
        name = f"{PREFIX}{namespace.replace('/', _JOINT)}"
        if notes:
            await self._rest.change("PUT", f"{self._path}/properties", {name: text_of(notes)})
            return
        try:
            await self._rest.change("DELETE", f"{self._path}/property/{name}")
        except RestError as failure:
            if not failure.absent:
                raise


def text_of(notes: Mapping[Slot, Note]) -> str:
    """Notes as they are kept.

    >>> text_of({Slot.parse("publishRate a/b"): Note(Rates(9, -1), None)})
    '{"publishRate a/b":[[9,-1,1],null]}'
    """
    rows = {
        slot.name: [list(after), None if before is None else list(before)]
        for slot, (after, before) in notes.items()
    }
    return orjson.dumps(rows).decode()


def notes_in(text: str) -> dict[Slot, Note]:
    """Notes from what is kept."""
    try:
        fields = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    found: dict[Slot, Note] = {}
    for name, said in fields.items() if isinstance(fields, dict) else ():
        slot = Slot.parse(name)
        if slot is not None and isinstance(said, list) and len(said) == 2:
            after, before = map(_rates, said)
            if after is not None:
                found[slot] = Note(after, before)
    return found


def _rates(said: Any) -> Rates | None:
    if not isinstance(said, list) or len(said) != 3 or not all(type(one) is int for one in said):
        return None
    return Rates(*said)
