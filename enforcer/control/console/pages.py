"""The console's files, as docs/operate/console.md shows them: the same for everybody, whoever asks.

They are read once and hold nothing of the cluster: what they show they ask the API for, with its tokens.
"""

from hashlib import sha256
from importlib.resources import files
from pathlib import PurePath
from typing import Final

from fastapi import APIRouter, Request, Response

from enforcer.control.groups import Refusal

_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
HEADERS: Final = {
    # Nothing from elsewhere, nothing inline, and no page around it.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # Asked each time, sent when it has changed: an update is seen at the next look.
    "Cache-Control": "no-cache",
}
INDEX: Final = "index.html"


def page_routes() -> APIRouter:
    """The page at `/` and what it needs below `/console/`."""
    router = APIRouter(include_in_schema=False)
    held = {
        file.name: file.read_bytes()
        for file in (files("enforcer.control.console") / "static").iterdir()
        if PurePath(file.name).suffix in _TYPES
    }
    tags = {name: f'"{sha256(content).hexdigest()[:16]}"' for name, content in held.items()}

    @router.get("/console/{name}")
    async def file(request: Request, name: str) -> Response:
        if name not in held:
            raise Refusal(404, "Not Found")
        headers = {**HEADERS, "ETag": tags[name]}
        if request.headers.get("if-none-match") == tags[name]:
            return Response(status_code=304, headers=headers)
        return Response(held[name], headers=headers, media_type=_TYPES[PurePath(name).suffix])

    @router.get("/")
    async def page(request: Request) -> Response:
        return await file(request, INDEX)

    return router
