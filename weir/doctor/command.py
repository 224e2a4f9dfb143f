"""`weir doctor`: what is open or wrong about an installation, and what mends it (docs/contract.md 4)."""

import argparse
from contextlib import suppress
from typing import Any

from streaming.policy.settings import read_settings
from weir.foreground import host_port, interruptible
from weir.options import add_address, add_cluster_options, add_flag, cluster_of
from weir.settings import DEFAULT_ADMIN, DEFAULT_LISTEN, DEFAULT_METRICS, DEFAULT_PULSAR_LISTEN, KafkaSettings

DOORS = {
    "proxy": ("--listen", DEFAULT_LISTEN, "proxy", "the Kafka proxy"),
    "pulsar": ("--pulsar-listen", DEFAULT_PULSAR_LISTEN, "pulsar", "the Pulsar proxy"),
    "admin": ("--admin", DEFAULT_ADMIN, "admin", "the admin API"),
    "metrics": ("--metrics", DEFAULT_METRICS, "proxy", "the metrics"),
}
"""By name: option, default, section of the settings, meaning."""
EPILOG = """\
examples:
  weir doctor --settings weir.yaml                    all checks, the worst first
  weir doctor --json | jq '.[] | select(.status != "ok")'
  weir doctor --kafka b1:9092 --listen 10.0.0.5:9092  a proxy that listens there

It changes nothing. Give it the parts' settings and a login that may see the cluster's ACLs and settings.
What can be reached is told as seen from this machine: run it where clients are, too. Exit status: 0 no error,
1 an error, 2 bad usage or settings.
"""
DESCRIPTION = (
    "Looks for brokers that can be reached past the proxy, missing ACLs, logins that"
    " fail, wrong topics, two proxies of one name, an absent job, wrong clocks, certificates that end,"
    " doors without TLS or tokens."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    add_cluster_options(parser)
    add_flag(parser, "--json", "print the findings as an array")
    for option, default, _, meaning in DOORS.values():
        add_address(parser, option, f"where {meaning} should listen (default: {default}, if there is one)")


def run(args: argparse.Namespace) -> int:
    """Look once; raises ConfigError if the settings are wrong."""
    # Here and not above: `weir --help` must not load a Kafka client.
    from weir.doctor.examination import examine
    from weir.doctor.findings import Status, as_json, as_lines
    from weir.doctor.patient import Door, Patient
    from weir.settings_file import SECTIONS

    doors = {}
    for name, (option, default, section, _) in DOORS.items():
        given = getattr(args, option.removeprefix("--").replace("-", "_"))
        doors[name] = Door(section=section, address=given or host_port(default), given=given is not None)
    kafka = read_settings(KafkaSettings, "kafka", args.settings)
    cluster, of_parts = cluster_of(args, tried=False), ("proxy", "pulsar", "admin", "http")
    sections: dict[str, Any] = {
        name: read_settings(cls, name, args.settings) for name, cls in SECTIONS if name in of_parts
    }
    logins = {part: kafka.client_of(part) for part in kafka.parts}
    patient = Patient(cluster=cluster, logins=logins, doors=doors, settings_file=args.settings, **sections)
    found = interruptible(lambda: examine(patient))
    with suppress(BrokenPipeError):
        # Who has read enough (`| head`) is told of errors all the same, by the status.
        print(as_json(found) if args.json else "\n".join(as_lines(found)))
    return int(any(each.status is Status.ERROR for _, each in found))
