"""Tokens of the admin API: what each allows, where they stand, and that file read again when it changes."""

import hashlib
import logging
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final, Self

from prometheus_client import Counter
from pydantic import BeforeValidator, ConfigDict, Field, Strict, model_validator

from enforcer.core.security.watched import WatchedFiles
from streaming.contract.errors import BadEvent, ConfigError, Problem
from streaming.policy.files import check_entry
from streaming.policy.policy_set import Section
from streaming.policy.validation import ClosedMapping, Form, expected, sorted_problems, wrong
from streaming.policy.yaml.lines import read_yaml

logger = logging.getLogger("weir.admin")
VARIABLE: Final = "WEIR_ADMIN_TOKENS"
"""What of the environment may hold tokens."""


class Role(StrEnum):
    """What a token allows: to see all, to see and change what belongs to its tenants, or all."""

    VIEWER = "viewer"
    TENANT = "tenant"
    OPERATOR = "operator"


_OLD_NAMES: Final = {"reader": Role.VIEWER, "admin": Role.OPERATOR}
_OF_ALL: Final = (Role.VIEWER, Role.OPERATOR)
"""Roles that need no more than a token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """One token.

    Attributes:
        name: how logs and records of changes call its holder.
        role: what it allows.
        digest: SHA-256 of the token; the token itself is not kept.
        tenants: of the role tenant, whose it is.
    """

    name: str
    role: Role
    digest: bytes = b""
    tenants: frozenset[str] = frozenset()


class Tokens:
    """The tokens in force: some for good, and those of a file as it is now.

    Args:
        fixed: not from the file.
        file: see `grants_of_file`; empty: none.

    Raises:
        ConfigError: the file is wrong, or one token is there twice.
    """

    def __init__(self, fixed: Sequence[Grant] = (), file: str = "") -> None:
        self._fixed, self._file = fixed, file
        self._grants = WatchedFiles(
            self._read, [file], logger, "the tokens before stay in force", ConfigError
        )

    def __bool__(self) -> bool:
        """Whether there is any; that stays so, since a file without one is refused."""
        return bool(self._fixed or self._file)

    def in_force(self, reads: Counter) -> Sequence[Grant]:
        """Those of now; of a file that has become unreadable or wrong those before; `reads` counts tries."""
        return self._grants.now(lambda read: reads.labels("read" if read else "unusable").inc())

    def _read(self) -> Sequence[Grant]:
        grants = [*(grants_of_file(self._file) if self._file else ()), *self._fixed]
        first: dict[bytes, Grant] = {}
        for grant in grants:
            other = first.setdefault(grant.digest, grant)
            if other is not grant:
                # Which of two roles would hold?
                message = f"the token of {grant.name} is that of {other.name} again; expected each token once"
                file = self._file or "tokens"
                raise ConfigError([Problem(file=file, line=1, path="tokens", message=message)])
        return grants


def _named(name: str, role: Role, digest: bytes, tenants: frozenset[str] = frozenset()) -> Grant:
    """A token; one without a name is called by its digest, which stays when others come before it."""
    return Grant(name=name or f"token-{digest.hex()[:8]}", role=role, digest=digest, tenants=tenants)


def digest_of(token: str) -> bytes:
    """What is kept of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


class _Secret(ClosedMapping):
    # Whole files hold nothing but a token, by mistake.
    model_config = ConfigDict(json_schema_extra={"writeOnly": True})


class _Token(_Secret):
    token: Annotated[str, Field(min_length=1), expected("text (quote numbers)", writeOnly=True)] = ""
    sha256: Annotated[
        str, Field(pattern="^[0-9a-fA-F]{64}$"), expected("64 hexadecimal digits", writeOnly=True)
    ] = ""
    role: Annotated[
        Role,
        Strict(False),
        BeforeValidator(lambda name: _OLD_NAMES.get(name, name) if isinstance(name, str) else name),
        expected("viewer, tenant or operator"),
    ]
    tenants: Annotated[list[str], Field(min_length=1), expected("a list of names of tenants")] | None = None
    name: Annotated[str, Field(min_length=1), expected("text that is not empty")] = ""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if bool(self.token) == bool(self.sha256):
            raise wrong("has both or neither of token and sha256; expected one of them")
        if (self.role is Role.TENANT) != (self.tenants is not None):
            raise wrong("has role tenant without tenants, or the other way round; expected both or neither")
        for tenant in self.tenants or ():
            try:
                check_entry(f"{Section.TENANTS}.{tenant}", None)
            except BadEvent:
                raise wrong("names what cannot be a tenant; expected tenants as Pulsar has them") from None
        return self


class _Tokens(_Secret):
    tokens: Annotated[
        list[_Token],
        Field(min_length=1),
        expected("a list of {token: ..., role: operator}", writeOnly=True),
    ]


def grants_of_file(path: str) -> list[Grant]:
    """Read a file of tokens: `tokens:` with a list of {token or sha256, role, tenants, name}.

    Raises:
        ConfigError: every problem; also a file without a token, since that would let everybody in, and one
            that others than its owner and its group may read, or others than its owner write.
    """
    source = read_yaml(path)
    mode = stat.S_IMODE(os.stat(path).st_mode)
    if mode & (stat.S_IRWXO | stat.S_IWGRP):
        who = "everybody on this machine may use" if mode & stat.S_IRWXO else "its group may change"
        message = f"has mode {mode:04o}, so {who} it; expected 0600, or 0640 for a group of its own"
        raise ConfigError([Problem(file=path, line=1, path="tokens", message=message)])
    read, findings = Form(_Tokens).read({} if source.value is None else source.value)
    problems = [*source.problems, *(source.problem(*finding) for finding in findings)]
    if read is None or problems:
        raise ConfigError(sorted_problems(problems))
    return [
        _named(
            item.name,
            item.role,
            bytes.fromhex(item.sha256) if item.sha256 else digest_of(item.token),
            frozenset(item.tenants or ()),
        )
        for item in read.tokens
    ]


def grants_of_text(text: str, source: str) -> list[Grant]:
    """Read `ROLE:TOKEN[,ROLE:TOKEN...]`, the form for an environment variable; without the role tenant.

    Messages name the source and never show a token.

    Raises:
        ConfigError: it is empty, or a part is not of that form.
    """
    grants = []
    for number, part in enumerate(text.split(",")):
        name, _, token = part.strip().partition(":")
        role = _OLD_NAMES.get(name, name)
        if role not in _OF_ALL or not token:
            message = f"part {number + 1} is not ROLE:TOKEN; expected role {' or '.join(_OF_ALL)} and a token"
            raise ConfigError([Problem(file=source, line=1, path=source, message=message)])
        grants.append(_named("", Role(role), digest_of(token)))
    return grants


def tokens_of(file: str, environment: Mapping[str, str]) -> Tokens:
    """Tokens of a file and of VARIABLE together; either may be absent.

    Raises:
        ConfigError: one of them is wrong, or there but without a token.
    """
    given = environment.get(VARIABLE)
    return Tokens(() if given is None else grants_of_text(given, f"${VARIABLE}"), file)
