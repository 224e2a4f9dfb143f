"""Connections that have lasted long enough: each ends once what is under way is answered."""

import random
from typing import Final

DRAIN_MS: Final = 30_000
"""So long an answer may take until then; clients wait no longer."""
_SPREAD: Final = 0.1
"""Those that came together do not come back together."""


def lifetime_s(age_max_s: int) -> float:
    """How long one connection may last."""
    return age_max_s * (1 - random.random() * _SPREAD)
