"""Options that several commands share."""

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from streaming.contract.topics import Cluster, Topics
from streaming.policy.settings import read_settings
from weir.foreground import host_port
from weir.logs.times import parse_time, wall_ms
from weir.settings import PORT_MAX, KafkaSettings


def add_cluster_options(parser: argparse.ArgumentParser) -> None:
    """Add --kafka and --settings."""
    add(parser, "--kafka", "the cluster (default: kafka.bootstrap of the settings)", metavar="HOST:PORT")
    add(parser, "--settings", "settings file, such as conf/weir.yaml", metavar="FILE")


def add_part_options(parser: argparse.ArgumentParser, ready: str) -> None:
    """Add --metrics and --ready-file; `ready` says when that is written."""
    add_address(parser, "--metrics", "serve /metrics there; port 0: any")
    add_file(parser, "--ready-file", f"written as JSON {ready}")


def add_address(parser: argparse.ArgumentParser, name: str, meaning: str, **others: Any) -> None:
    """Add an option that takes HOST:PORT."""
    add(parser, name, meaning, metavar="HOST:PORT", type=host_port, **others)


def add_file(parser: argparse.ArgumentParser, name: str, meaning: str, **others: Any) -> None:
    """Add an option that takes a path."""
    add(parser, name, meaning, **{"metavar": "FILE", "type": Path, **others})


def add(parser: "argparse._ActionsContainer", name: str, meaning: str, **others: Any) -> None:
    """Add an option."""
    parser.add_argument(name, help=meaning, **others)


def add_flag(parser: "argparse._ActionsContainer", name: str, meaning: str) -> None:
    """Add an option that is given or not."""
    parser.add_argument(name, action="store_true", help=meaning)


def number(least: float, most: float, read: Callable[[str], Any] = float) -> Callable[[str], Any]:
    """A reader of numbers within bounds, `read` with int: of whole ones."""
    kind = "a whole number" if read is int else "a number"

    def bounded(text: str) -> Any:
        try:
            value = read(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text!r}; expected {kind} at least {least} and at most {most}")
        return value

    return bounded


def whole(least: int, most: int) -> Callable[[str], int]:
    """A reader of whole numbers within bounds."""
    return number(least, most, int)


port_number = whole(0, PORT_MAX)
"""A reader of ports; 0: any free one."""


def cluster_of(args: argparse.Namespace, part: str = "") -> Cluster:
    """What --kafka and --settings say together, to a part as `KafkaSettings.client_of` takes it.

    Raises:
        ConfigError: the file is wrong.
    """
    settings = read_settings(KafkaSettings, "kafka", args.settings)
    return Cluster(
        bootstrap=args.kafka or settings.bootstrap,
        topics=Topics(settings.topic_prefix),
        client=settings.client_of(part),
        topics_check_ms=settings.topics_check_ms,
        topics_kept_ms=settings.topics_kept_ms,
    )


def time_argument(text: str) -> int:
    """A TIME on the command line as ms since the epoch; relative ones count back from now."""
    try:
        return parse_time(text, wall_ms())
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
