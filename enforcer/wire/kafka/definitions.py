"""Kafka's own definitions of its messages: which fields a body has in a version.

They are the JSON files that kafka-python carries, and ours of the same kind, read when they are first needed,
and newer ones that stand in `group_apis`.
"""

import re
import struct
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import orjson

from enforcer.wire.kafka.group_apis import GROUP_APIS

Definition = dict[str, Any]
"""A message, a struct of one or a field of that, as Kafka's JSON says it."""
_COMMENT: Final = re.compile(r"(?m)^\s*//.*$")
CODES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "bool": "?", "int8": "b", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q",
        "float64": "d", "uuid": "16s",
    }
)  # fmt: skip
"""Types of fixed size, as `struct` knows them."""
WIDTHS: Final = MappingProxyType({kind: struct.calcsize(f">{code}") for kind, code in CODES.items()})
"""And their bytes."""

NAMES: Final = (
    "Produce", "Fetch", "ListOffsets", "Metadata", "LeaderAndIsr", "StopReplica", "UpdateMetadata",
    "ControlledShutdown", "OffsetCommit", "OffsetFetch", "FindCoordinator", "JoinGroup", "Heartbeat",
    "LeaveGroup", "SyncGroup", "DescribeGroups", "ListGroups", "SaslHandshake", "ApiVersions",
    "CreateTopics", "DeleteTopics", "DeleteRecords", "InitProducerId", "OffsetForLeaderEpoch",
    "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "WriteTxnMarkers", "TxnOffsetCommit", "DescribeAcls",
    "CreateAcls", "DeleteAcls", "DescribeConfigs", "AlterConfigs", "AlterReplicaLogDirs", "DescribeLogDirs",
    "SaslAuthenticate", "CreatePartitions", "CreateDelegationToken", "RenewDelegationToken",
    "ExpireDelegationToken", "DescribeDelegationToken", "DeleteGroups", "ElectLeaders",
    "IncrementalAlterConfigs", "AlterPartitionReassignments", "ListPartitionReassignments", "OffsetDelete",
    "DescribeClientQuotas", "AlterClientQuotas", "DescribeUserScramCredentials",
    "AlterUserScramCredentials", "Vote", "BeginQuorumEpoch", "EndQuorumEpoch", "DescribeQuorum",
    "AlterPartition", "UpdateFeatures", "Envelope", "FetchSnapshot", "DescribeCluster", "DescribeProducers",
    "BrokerRegistration", "BrokerHeartbeat", "UnregisterBroker", "DescribeTransactions", "ListTransactions",
    "AllocateProducerIds", "ConsumerGroupHeartbeat", "ConsumerGroupDescribe", "ControllerRegistration",
    "GetTelemetrySubscriptions", "PushTelemetry", "AssignReplicasToDirs", "ListConfigResources",
    "DescribeTopicPartitions", "ShareGroupHeartbeat", "ShareGroupDescribe", "ShareFetch",
    "ShareAcknowledge", "AddRaftVoter", "RemoveRaftVoter", "UpdateRaftVoter", "InitializeShareGroupState",
    "ReadShareGroupState", "WriteShareGroupState", "DeleteShareGroupState", "ReadShareGroupStateSummary",
    "StreamsGroupHeartbeat", "StreamsGroupDescribe", "DescribeShareGroupOffsets", "AlterShareGroupOffsets",
    "DeleteShareGroupOffsets",
)  # fmt: skip
"""Kafka's name of each API, by its key."""

# To import these for a few files would cost the proxy a fifth of a second and its memory.
_CARRIERS: Final = (("streaming.kafka_io.messages", ""), ("kafka", "protocol/schemas/resources"))


def _read(said: str) -> list[Definition]:
    """Fields, in the words of `group_apis`."""
    levels: list[list[Definition]] = [[]]
    for token in re.findall(r"[^\s()]+|[()]", said):
        if token == "(":
            levels.append([])
        elif token == ")":
            fields = levels.pop()
            levels[-1][-1] |= {"type": f"{levels[-1][-1]['type']}Struct", "fields": fields}
        else:
            named, _, default = token.partition("=")
            named, _, versions = named.partition("/")
            name, _, kind = named.partition(":")
            field = {"name": name, "type": kind.rstrip("?"), "versions": versions or "0+"}
            null = {"nullableVersions": "0+", "default": "null"} if kind.endswith("?") else {}
            levels[-1].append(field | null | ({"default": default} if default else {}))
    return levels[0]


DEFINITIONS: Final[Mapping[tuple[int, str], Definition]] = MappingProxyType(
    {api: {"validVersions": own, "fields": _read(said)} for api, (own, said) in GROUP_APIS.items()}
)
"""(API, request or response) -> definition."""


class Field(NamedTuple):
    """A field of a struct in one version.

    Attributes:
        name: Kafka's.
        present: this version has it.
        kind: a type of fixed size, `string`, `bytes`, `struct`, or `[]` before the type of an array's items.
        nullable: it may be null.
        default: its value where nobody says one.
        fields: of the struct, or of each struct of the array.
    """

    name: str
    present: bool
    kind: str
    nullable: bool
    default: Any
    fields: tuple["Field", ...] = ()

    @property
    def width(self) -> int:
        """Bytes, if that is always the same, else 0."""
        return WIDTHS.get(self.kind, 0)


@cache
def body(key: int, version: int, kind: str) -> tuple[Field, ...]:
    """The fields of a body but for the tagged ones; those of other versions are not `present`.

    Args:
        key: of the API.
        version: its version.
        kind: request or response, or Kafka's name of what clients send each other in them. With `.Name`
            behind it one field of it, as the content of a tagged one is; with `.Name()` a struct of such a
            list, `.Name().Name()` one in that.

    Raises:
        OSError: there is no definition of it.
    """
    kind, *names = kind.split(".")
    definition = _definition(key, kind)
    common = {part["name"]: part["fields"] for part in definition.get("commonStructs", ())}
    parts = definition["fields"]
    for name in names:
        one = _named(parts, name.removesuffix("()"), version)
        parts = one["fields"] if name.endswith("()") else [{**one, "taggedVersions": "none"}]
    return _fields(parts, common, version)


def newest(key: int) -> int:
    """The last version that the definitions of an API have, the lesser of request and response."""
    return min(_span(_definition(key, kind)["validVersions"])[1] for kind in ("request", "response"))


def _named(definitions: Sequence[Definition], name: str, version: int) -> Definition:
    return next(one for one in definitions if one["name"] == name and _holds(one["versions"], version))


@cache
def _folders() -> tuple[Path, ...]:
    specs = ((find_spec(package), folder) for package, folder in _CARRIERS)
    return tuple(Path(spec.origin).parent / folder for spec, folder in specs if spec and spec.origin)


@cache
def _definition(key: int, kind: str) -> Definition:
    found = DEFINITIONS.get((key, kind))
    if found is not None:
        return found
    name = f"{NAMES[key]}{kind.capitalize()}" if kind in ("request", "response") else kind
    files = (folder / f"{name}.json" for folder in _folders())
    found_at = next((file for file in files if file.exists()), None)
    if found_at is None:
        raise FileNotFoundError(f"{name}.json, which kafka-python carries")
    text = found_at.read_text()
    read: Definition = orjson.loads(_COMMENT.sub("", text))
    return read


def _span(text: str) -> tuple[int, int]:
    """`3+`, `0-12` or `7` as first and last version; `none` as an empty span."""
    if text == "none":
        return 0, -1
    first, _, last = text.partition("-")
    if first.endswith("+"):
        return int(first[:-1]), (1 << 15) - 1
    return int(first), int(last or first)


def _holds(text: str, version: int) -> bool:
    first, last = _span(text)
    return first <= version <= last


def _fields(
    definitions: Sequence[Definition], common: Mapping[str, Sequence[Definition]], version: int
) -> tuple[Field, ...]:
    found = []
    for definition in definitions:
        if definition.get("taggedVersions", "none") != "none":
            continue
        present = _holds(definition["versions"], version)
        kind = definition["type"].replace("records", "bytes")
        item = kind.removeprefix("[]")
        fields: tuple[Field, ...] = ()
        if item not in WIDTHS and item not in ("string", "bytes"):
            fields = _fields(definition.get("fields") or common[item], common, version)
            kind = kind.removesuffix(item) + "struct"
        nullable = _holds(definition.get("nullableVersions", "none"), version)
        default = _default(definition, kind, nullable)
        found.append(Field(definition["name"], present, kind, nullable, default, fields))
    return tuple(found)


def _default(definition: Definition, kind: str, nullable: bool) -> Any:
    if kind in ("string", "bytes"):
        return None if nullable else b""
    if kind not in WIDTHS:
        return () if kind.startswith("[]") else None
    said = str(definition.get("default", "0"))
    if kind == "bool":
        return said.lower() == "true"
    if kind == "uuid":
        return bytes(WIDTHS[kind])
    return float(said) if kind == "float64" else int(said, 0)
