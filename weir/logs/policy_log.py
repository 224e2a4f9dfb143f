"""`weir policy log`: who has changed which policy, what it was before, and why (docs/contract.md 4)."""

import os
import pwd
import socket
from typing import Any

import orjson

from streaming.contract.printable import printable


def line(row: dict[str, Any], at: str) -> str:
    """A row for people; `at` is its time in words."""
    old = "?" if row.get("old_known") is False else _value(row["old"])
    who = row["actor"] or "(nobody named)"
    why = f": {row['reason']}" if row["reason"] else ""
    return printable(f"{at} version {row['version']} {who} {row['entry']} {old} -> {_value(row['new'])}{why}")


def _value(value: Any) -> str:
    return "none" if value is None else orjson.dumps(value).decode()


def actor_here(way: str) -> str:
    """Who publishes something here, `<way>:<user>@<host>`."""
    number = os.geteuid()
    try:
        user = pwd.getpwuid(number).pw_name
    except KeyError:  # as in containers
        user = str(number)
    return f"{way}:{user}@{socket.gethostname()}"
