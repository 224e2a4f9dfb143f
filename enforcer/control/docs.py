"""What the admin API says of itself: what FastAPI does not know, and a page made from all of it.

The page is made here and not by Swagger UI, which a browser would have to fetch from elsewhere.
"""

from html import escape
from threading import Lock
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from streaming.policy.validation import Schema

DESCRIPTION: Final = (
    "Resource groups of PIP-82, dispatch rates and backlog quotas over the paths of Pulsar's brokers, so "
    "that pulsar-admin works as it is. "
    "Changes are visible at once and in force two seconds later. Every error is {\"reason\": \"...\"}. With "
    "configured tokens every call needs one (Authorization: Bearer TOKEN), and its role says what it may see "
    "and change; "
    "without, only clients on the same machine are answered."
)
_PAGE_HEADERS: Final = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}

Responses = dict[int | str, dict[str, Any]]
_TEXTS: Final = {
    400: "The body or a value is wrong",
    401: "No valid token",
    403: "Not by this token's role, or without tokens not from this machine",
    404: "No such group or type of quota, or nothing is known of such a topic",
    408: "The body came too slowly",
    412: "No such group or setting, a name that is none, or in use",
    413: "The body is too large",
    429: "Too many changes of a tenant in this minute, by tokens for tenants",
    503: "Kafka does not answer within the limit; a change may have been made",
}
BARE_NAME: Final[Responses] = {
    200: {"description": "The bare name", "content": {"text/plain": {"schema": {"type": "string"}}}}
}


class Reason(BaseModel):
    """What every error answers."""

    reason: str


def refusals(*codes: int) -> Responses:
    """The errors that an operation may answer with."""
    return {code: {"model": Reason, "description": _TEXTS[code]} for code in codes}


def body(schema: Schema) -> dict[str, Any]:
    """A body that the operation reads by itself, within its limits of size and time."""
    content = {"application/json": {"schema": schema}}
    described = {"required": True, "description": schema["description"], "content": content}
    return {"requestBody": described}


def or_empty(schema: Schema) -> Responses:
    """An answer that may be empty."""
    content = {"application/json": {"schema": schema}}
    return {200: {"description": "As a POST has it; empty: none", "content": content}}


def add_to(app: FastAPI) -> None:
    """Serve it; whoever asks first has it made, in a thread, since that takes half a second."""
    making, made = Lock(), dict[str, Any]()

    def make() -> None:
        with making:
            if not made:
                openapi = app.openapi()
                _complete(openapi)
                made.update(openapi)

    async def described() -> dict[str, Any]:
        # Once it is there nobody waits for a thread: who asks often and takes nothing would hold them all.
        if not made:
            await run_in_threadpool(make)
        return made

    @app.get("/docs", include_in_schema=False)
    async def page() -> HTMLResponse:
        return HTMLResponse(_page(await described()), headers=_PAGE_HEADERS)

    async def as_json(_: Request) -> JSONResponse:
        return JSONResponse(await described())

    app.add_route("/openapi.json", as_json, include_in_schema=False)


def _complete(openapi: dict[str, Any]) -> None:
    """Say that no token may be needed, and not FastAPI's own answer to a wrong name in a path: none is."""
    for operations in openapi["paths"].values():
        for operation in operations.values():
            operation["security"].append({})
            operation["responses"].pop("422", None)
    for unused in ("HTTPValidationError", "ValidationError"):
        del openapi["components"]["schemas"][unused]


def _page(openapi: dict[str, Any]) -> str:
    """The OpenAPI description as one HTML page that needs nothing else."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><title>Weir admin API</title>",
        "<style>body{font:16px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
        "code{background:#eee;padding:.1em .3em}summary{cursor:pointer}td{padding-right:1em}</style>",
        f"<h1>{escape(openapi['info']['title'])}</h1><p>{escape(openapi['info']['description'])}</p>",
        "<p>For programs: <a href=/openapi.json>openapi.json</a></p>",
    ]
    for path, operations in openapi["paths"].items():
        for method, operation in operations.items():
            parts.append(_operation(path, method, operation))
    return "\n".join(parts)


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td>{escape(code)}<td>{escape(answer['description'])}"
        for code, answer in operation["responses"].items()
    )
    body = operation.get("requestBody")
    fields = ", ".join(body["content"]["application/json"]["schema"]["properties"]) if body else ""
    told = f"<p>Body: {escape(fields)}. {escape(body['description'])}" if body else ""
    return (
        f"<details><summary><code>{method.upper()} {escape(path)}</code> {escape(operation['summary'])}"
        f"</summary>{told}<table>{rows}</table></details>"
    )
