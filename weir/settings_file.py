"""conf/weir.yaml, made from the code: `python -m weir.settings_file > conf/weir.yaml`."""

import sys

from enforcer.control.settings import AdminSettings
from enforcer.core.settings import ProxySettings
from enforcer.http.settings import HttpSettings
from enforcer.pulsar.settings import PulsarSettings
from streaming.collect.settings import BacklogSettings, PulsarCollectSettings
from streaming.job.spark.settings import JobSettings
from streaming.policy.settings import SECTIONS as NAMES
from streaming.policy.settings import Settings, render_section
from weir.settings import CollectSettings, KafkaSettings, LocalSettings

HEADER = """\
# Every setting of Weir at its default, with its meaning and unit. Leave out what you do not change.
# Each command takes such a file with --settings FILE; options on the command line win over it.
# Made by `python -m weir.settings_file`; a test holds it equal to the code.
"""
_READ_AS: tuple[type[Settings], ...] = (
    KafkaSettings, JobSettings, ProxySettings, PulsarSettings, AdminSettings, HttpSettings, CollectSettings,
    BacklogSettings, PulsarCollectSettings, LocalSettings,
)  # fmt: skip
SECTIONS = tuple(zip(NAMES, _READ_AS, strict=True))
"""Each with what it is read as."""


def render() -> str:
    """The whole file."""
    shown: set[type] = set()
    return "\n".join([HEADER, *(render_section(cls, name, shown) for name, cls in SECTIONS)])


if __name__ == "__main__":
    sys.stdout.write(render())
