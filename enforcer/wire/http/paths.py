"""How the path of an HTTP request is read: one way, though servers have several."""

from urllib.parse import unquote


class BadPath(ValueError):
    """A path that servers may read in several ways."""


def plain(target: str) -> str:
    """The path of a request's target without what servers take away before they look for whom it is.

    A target may be a whole URL; a fragment and parameters of segments count for nothing.

    >>> plain("http://other/admin/v2;a=b/persistent/t;c#d")
    '/admin/v2/persistent/t'
    """
    if not target.startswith("/"):
        _, _, rest = target.partition("://")
        target = "/" + rest.partition("/")[2]
    path = target.partition("#")[0].partition("?")[0]
    return "/".join(segment.partition(";")[0] for segment in path.split("/"))


def segments_of(path: str) -> tuple[str, ...]:
    """The decoded segments of a plain path, empty ones left out: so no way of writing it misses a rule.

    >>> segments_of("/admin//v2/%70ersistent/t%2F1/")
    ('admin', 'v2', 'persistent', 't/1')

    Raises:
        BadPath: it has a segment of one dot or two, which some servers take away and others do not.
    """
    segments = tuple(unquote(segment) for segment in path.split("/") if segment)
    if "." in segments or ".." in segments:
        raise BadPath("The path has a part of dots only")
    return segments
