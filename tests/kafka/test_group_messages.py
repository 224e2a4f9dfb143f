"""The messages of newer groups that we have written down ourselves are Kafka's own."""

import json
import re
import zipfile
from typing import Any

import pytest
from kafka.protocol.schemas.load_json import load_json

from enforcer.wire.kafka import definitions
from enforcer.wire.kafka.frames import Fields
from streaming.kafka_io import messages
from weir.jars.folders import KAFKA, jars_dir


def kafkas(message: str) -> Any:
    """A definition in Kafka's jar."""
    (jar,) = jars_dir(KAFKA).glob("kafka-clients-*.jar")
    with zipfile.ZipFile(jar) as opened:
        text = opened.read(f"common/message/{message}.json").decode()
    return json.loads(re.sub(r"(?m)^\s*//.*$", "", text))


@pytest.mark.parametrize("key", [68, 69, 76, 77, 78, 79, 88, 89, 90, 91, 92])
def test_the_proxys(key: int) -> None:
    """What the codec goes by reads as the definitions in Kafka's jar."""
    for kind in ("request", "response"):
        said = kafkas(definitions.NAMES[key] + kind.capitalize())
        first, _, last = said["validVersions"].partition("-")
        assert definitions._definition(key, kind)["validVersions"] == said["validVersions"]
        common = {part["name"]: part["fields"] for part in said.get("commonStructs", ())}
        for version in range(int(first), int(last or first) + 1):
            theirs = present(definitions._fields(said["fields"], common, version))
            assert present(definitions.body(key, version, kind)) == theirs


def present(fields: tuple[definitions.Field, ...]) -> tuple[definitions.Field, ...]:
    """Those that a version has."""
    return tuple(each._replace(fields=present(each.fields)) for each in fields if each.present)


@pytest.mark.parametrize("name", ["DescribeShareGroupOffsets", "AlterShareGroupOffsets"])
def test_the_collectors(name: str) -> None:
    """What stands in kafka_io/messages reads as the definitions in Kafka's jar."""
    for kind in ("Request", "Response"):
        assert written(load_json(name + kind, messages)) == written(kafkas(name + kind))


def written(message: Fields) -> object:
    """What decides about its bytes."""
    fields = [
        (each["name"], each["type"].startswith("[]"), each["versions"], each.get("nullableVersions"),
         written(each) if "fields" in each else each["type"])
        for each in message["fields"]
    ]  # fmt: skip
    return [message.get(part) for part in ("apiKey", "validVersions", "flexibleVersions")], fields
