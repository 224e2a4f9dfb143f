"""Options that several commands share."""

import argparse
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from streaming.contract.errors import BadEvent, ConfigError
from streaming.contract.names import full_topic
from streaming.contract.topics import Cluster, Topics
from streaming.policy.settings import read_settings
from streaming.policy.yaml.lines import read_yaml
from weir.foreground import host_port
from weir.logs.times import BEGINNING_MS, EXPECTED, parse_time, wall_ms
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


def add_stretch(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    """Add --from and --to, see `stretch_of`; those of a bill are `required`."""
    start, end = ("", "") if required else (" (default: beginning)", " (default: now)")
    time: dict[str, Any] = {"type": time_argument, "metavar": "TIME", "required": required}
    add(parser, "--from", f"{EXPECTED}{start}", dest="start", **time)
    add(parser, "--to", f"the same; not included{end}", dest="end", **time)


def add_watch(parser: argparse.ArgumentParser, every_s: float) -> None:
    """Add --watch."""
    again = f"again every so often (default: {every_s:.0f}) until Ctrl-C"
    seconds = number(0.1, 86_400)
    add(parser, "--watch", again, nargs="?", const=every_s, metavar="SECONDS", type=seconds)


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


def cluster_of(args: argparse.Namespace, part: str = "", *, tried: bool = True) -> Cluster:
    """What --kafka and --settings say together, to a part as `KafkaSettings.client_of` takes it.

    Args:
        args: of the command.
        part: see there.
        tried: see `check_client`; else whoever connects looks itself.

    Raises:
        ConfigError: the file is wrong.
    """
    settings = read_settings(KafkaSettings, "kafka", args.settings)
    client = settings.client_of(part)
    if tried:
        check_client(client, args.settings, part)
    return Cluster(
        bootstrap=args.kafka or settings.bootstrap, topics=Topics(settings.topic_prefix), client=client,
        topics_kept_ms=settings.topics_kept_ms,
    )  # fmt: skip


def check_client(client: Mapping[str, str], file: str | None, part: str = "") -> None:
    """Refuse properties that librdkafka does not take: by them no connection can be made.

    Args:
        client: they.
        file: the settings, where they stand.
        part: of them some are that part's own.

    Raises:
        ConfigError: with the line of the one that it names.
    """
    if not client or file is None:
        return
    # Here and not above: `weir --help` must not load a Kafka client.
    from streaming.kafka_io.writer import refusal

    if why := refusal(client):
        key, source = named_in(why, client), read_yaml(file)
        own = ("kafka", "clients", part, key)
        path = own if own in source.lines else ("kafka", "client", *filter(None, [key]))
        # It may be a password that stands in the wrong place.
        why = why.replace(f'"{client.get(key)}"', '"..."')
        raise ConfigError([source.problem(path, f"{why}; expected what librdkafka takes")])


def named_in(why: str, client: Iterable[str]) -> str:
    """The property that librdkafka's words name, the longest: names are parts of other names; empty: none."""
    return max((key for key in client if key in why), key=len, default="")


def time_argument(text: str) -> int:
    """A TIME on the command line as ms since the epoch; relative ones count back from now."""
    try:
        return parse_time(text, wall_ms())
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def topic_argument(text: str) -> str:
    """The full name of a topic, which the command line may have in short."""
    try:
        return full_topic(text)
    except BadEvent as error:
        raise argparse.ArgumentTypeError(f"{text!r} {error.reason}") from error


def stretch_of(args: argparse.Namespace) -> tuple[int, int]:
    """What --from and --to say, absent: all; the wrong way round they end the command with status 2."""
    start = BEGINNING_MS if args.start is None else args.start
    end = wall_ms() if args.end is None else args.end
    if start > end:
        args.usage_error("--from is later than --to")
    return start, end
