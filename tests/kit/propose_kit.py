"""What the tests of proposals share: a log as a file, and what is proposed from it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from event_kit import Event
from law_kit import request
from plan_kit import file_of

from weir.propose.run import Proposed, run

HOUR_MS = 3_600_000
NAMESPACE = "namespaces.acme/orders"
RATE, BURST = "controller_mutation_rate", "controller_mutation_burst"


def proposed(
    folder: Path, events: Sequence[Event], headroom: float = 1.0, policies: str | None = None
) -> Proposed:
    """What comes of a log."""
    return run([file_of(folder, "log.jsonl", *events)], headroom, policies)


def entries_of(folder: Path, events: Sequence[Event], headroom: float = 1.0) -> dict[str, Any]:
    """Entries by path."""
    return proposed(folder, events, headroom).proposal.entries


def flat(text: str) -> str:
    """A file's text on one line, comments as they read."""
    return " ".join(line.strip().removeprefix("# ") for line in text.splitlines())


def hourly(user: str, *mutations: int, every_ms: int = HOUR_MS) -> list[Event]:
    """One request an hour, of so many mutations; 0: none."""
    return [
        request(f"{user}-{number}", number * every_ms, count, user=user)
        for number, count in enumerate(mutations) if count
    ]  # fmt: skip
