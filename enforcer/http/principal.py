"""Who asks: the user of a credential that the upstream tells from a wrong one, else nobody in particular.

A credential names a user before anybody has looked at it. To charge that user one has to know that the
upstream accepts it, or everybody could use up everybody's quota; and that it does not accept whatever
comes, or everybody could be somebody new each time.
"""

import base64
import binascii
import hashlib
import secrets
from collections.abc import Awaitable, Callable
from typing import Final

from cachetools import TTLCache

from enforcer.core.security.credentials import name_of_password, name_of_token
from enforcer.http.metrics import HttpMetrics
from enforcer.http.relay.upstream import UpstreamFailed
from enforcer.http.settings import HttpSettings
from streaming.contract.events import ANONYMOUS

CREDENTIALS_MAX: Final = 10_000
"""Credentials whose answer is kept."""
CREDENTIAL_S: Final = 60.0
"""How long it is believed that the upstream knows a credential."""
_REFUSALS: Final = frozenset((401, 403))
_BEARER, _BASIC = b"bearer", b"basic"


class Principals:
    """Users of credentials.

    Args:
        settings: bounds, and which claim of a token names its user.
        metrics: counts.
        ask: the status of the upstream's answer to a cheap request with an Authorization.
        now_s: a steady clock.
    """

    def __init__(
        self,
        settings: HttpSettings,
        metrics: HttpMetrics,
        ask: Callable[[bytes], Awaitable[int]],
        now_s: Callable[[], float],
    ) -> None:
        self._claim = settings.token_claim
        self._metrics = metrics
        self._ask = ask
        self._users: TTLCache[bytes, str] = TTLCache(CREDENTIALS_MAX, CREDENTIAL_S, now_s)
        # By scheme: what the upstream says of a credential that cannot be right.
        self._wrong: TTLCache[bytes, int] = TTLCache(2, CREDENTIAL_S, now_s)

    async def user(self, authorization: bytes | None) -> str:
        """Whose request it is, by its header, if it has one."""
        name = None if authorization is None else claimed(authorization, self._claim)
        if name is None or authorization is None:
            return ANONYMOUS
        key = hashlib.sha256(authorization).digest()
        known = self._users.get(key)
        if known is not None:
            return known
        try:
            user = name if await self._accepted(authorization) else ANONYMOUS
        except UpstreamFailed:
            self._metrics.credentials.labels("unknown").inc()
            return ANONYMOUS
        self._metrics.credentials.labels("accepted" if user == name else "refused").inc()
        self._users[key] = user
        return user

    async def _accepted(self, authorization: bytes) -> bool:
        scheme = authorization.partition(b" ")[0].lower()
        wrong = self._wrong.get(scheme)
        if wrong is None:
            made_up = secrets.token_hex(16).encode()
            if scheme == _BASIC:
                made_up = base64.b64encode(made_up + b":" + made_up)
            wrong = self._wrong[scheme] = await self._status(scheme + b" " + made_up)
        if wrong not in _REFUSALS:
            return False
        # Who may not do this may be known all the same, if strangers are answered otherwise.
        return await self._status(authorization) not in (wrong, 401)

    async def _status(self, authorization: bytes) -> int:
        status = await self._ask(authorization)
        if status == 429 or status >= 500:
            # It says nothing of the credential, and is soon over.
            raise UpstreamFailed(status, "The upstream does not say who asks", "busy", sent=False)
        return status


def claimed(authorization: bytes, claim: str) -> str | None:
    """The user that a credential names, a JSON Web Token by this claim; None if it names none.

    >>> claimed(b"Basic YWxpY2U6c2VjcmV0", "sub")
    'alice'
    """
    scheme, _, credential = authorization.partition(b" ")
    scheme, credential = scheme.lower(), credential.strip()
    if scheme == _BEARER:
        return name_of_token(credential, claim)
    if scheme != _BASIC:
        return None
    try:
        return name_of_password(base64.b64decode(credential, validate=True))
    except binascii.Error:
        return None
