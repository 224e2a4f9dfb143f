"""Every error that Weir raises on purpose.

    WeirError
    +-- BadEvent     one record cannot be used; its reason goes to the dead-letter topic
    +-- ConfigError  a policy or settings file cannot be used; the command stops with status 2
    +-- TakenOver    another process has the right that this one had; the command stops with status 3
    +-- StateError   state cannot be read or kept; the query ends, since no law may decide without it
"""

from dataclasses import dataclass


class WeirError(Exception):
    """Base of all of them; the command line prints it as one line and exits with status 1."""


class BadEvent(WeirError):
    """A record that cannot be used (docs/contract.md 1).

    Args:
        reason: what is wrong with it and what was expected, for the reader of the dead letter.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class TakenOver(WeirError):
    """Another process has started since with the right that this one had.

    Args:
        message: who has it.
        lease: the right: a transactional id.
    """

    def __init__(self, message: str, lease: str = "") -> None:
        super().__init__(message)
        self.lease = lease


class StateError(WeirError):
    """What a shard knows is damaged, missing, or cannot be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing wrong in a policy or settings file.

    Attributes:
        file: the file as the user named it.
        line: 1-based line of the offending key, of its parent if a key is missing.
        path: the key, dotted; list items read `quotas[0]`.
        message: `what is wrong; what was expected`.
    """

    file: str
    line: int
    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.path}: {self.message}"


class ConfigError(WeirError):
    """A file of policies or settings is wrong; carries every problem found, in file order."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems
