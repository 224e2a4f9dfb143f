"""The guard's side of a connection: what no client may ask for, or not in this form, goes no further."""

from enforcer.kafka.guard.guard import Guard
from enforcer.kafka.guard.versions import api_versions_refusal, unsupported
from enforcer.kafka.part import EVERYTHING, Concern, Link, Part, Request
from enforcer.wire.kafka.frames import API_VERSIONS


class GuardConcern(Concern):
    """Looks at all that is read; what passes unread, Requests looks at by itself.

    Args:
        guard: see there.
    """

    keys = EVERYTHING

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    def part(self, link: Link) -> Part:
        return GuardPart(link, self._guard)


class GuardPart(Part):
    """Judges the requests of one connection.

    Args:
        link: the connection.
        guard: see there.
    """

    def __init__(self, link: Link, guard: Guard) -> None:
        self._link = link
        self._guard = guard

    def take(self, request: Request) -> bool:
        header = request.header
        if unsupported(header):
            self._link.end("unsupported_version")
            return False
        if header.api_key == API_VERSIONS and (refusal := api_versions_refusal(header)) is not None:
            self._link.answer(request, refusal)
            return False
        judged = self._guard.judge(request.frame, header, request.user)
        if judged is None:
            return True
        if judged.frame is None:
            if judged.answer is not None:
                self._link.answer(request, judged.answer)
            return False
        request.frame = judged.frame
        if judged.finish is not None:
            request.amend(judged.finish)
        return True
