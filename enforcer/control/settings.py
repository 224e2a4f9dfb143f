"""Settings of the admin API (section `admin:` of weir.yaml), declared once and frozen."""

import re
from typing import Annotated, Final

from pydantic import AfterValidator

from enforcer.core.security.doors import DoorSettings
from streaming.policy.settings import setting
from streaming.policy.validation import expected, wrong

_ORIGIN: Final = re.compile(r"https?://(?:[a-z0-9.-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")
_ORIGIN_EXPECTED: Final = "an origin as browsers send it, SCHEME://HOST[:PORT] in small letters"


def _origin(text: str) -> str:
    if not _ORIGIN.fullmatch(text):
        raise wrong(f"is no origin; expected {_ORIGIN_EXPECTED}")
    return text


Origin = Annotated[str, AfterValidator(_origin), expected(_ORIGIN_EXPECTED)]


class AdminSettings(DoorSettings):
    """Settings of one admin API process."""

    tokens_file: str = setting(
        "",
        "file with tokens and their roles, beside those of WEIR_ADMIN_TOKENS, see docs/admin_api.md; empty:"
        " none; --tokens wins over it",
    )
    share_tokens: bool = setting(
        False,
        "in front of another admin API: tokens of Weir's are shown to it too, where it knows the same ones; "
        "else such a request gets 401",
    )
    allowed_origins: list[Origin] = setting(
        [],
        "origins of pages, such as https://ops.example.org, whose scripts may use the API from a browser; "
        "without tokens they may change limits",
    )
    connections_per_address: int = setting(
        100,
        "connections of one address, of this machine, or of an IPv6 network (/64), idle ones too; for a "
        "further one that ends which waits for its client longest, or if none does, it gets 503",
        minimum=1,
    )
