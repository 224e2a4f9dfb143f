"""What the admin API says of itself: OpenAPI fragments, and a page made from them.

The page is made here and not by Swagger UI, which a browser would have to fetch from elsewhere.
"""

from html import escape
from typing import Any, Final

from streaming.contract.usage_events import DIMENSIONS

DESCRIPTION: Final = (
    "Resource groups of PIP-82 over the paths that Pulsar's broker has, so that pulsar-admin works as it is. "
    "Changes are visible at once and in force two seconds later. Every error is {\"reason\": \"...\"}. With "
    "configured tokens every call needs one (Authorization: Bearer TOKEN) and changes need the role admin; "
    "without, only clients on the same machine are answered."
)
PAGE_HEADERS: Final = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}

_Responses = dict[int | str, dict[str, Any]]
_REASON: Final = {
    "type": "object",
    "required": ["reason"],
    "properties": {"reason": {"type": "string"}},
}
_TEXTS: Final = {
    400: "The body is wrong",
    401: "No valid token",
    403: "No admin role, or without tokens not from this machine",
    404: "No such group",
    408: "The body came too slowly",
    412: "No such group, a name that is none, or in use",
    413: "The body is too large",
    503: "Kafka does not answer within the limit; a change may have been made",
}


def _responses(*codes: int, content: dict[str, Any] | None = None, text: str = "Done") -> _Responses:
    errors: _Responses = {
        code: {"description": _TEXTS[code], "content": {"application/json": {"schema": _REASON}}}
        for code in codes
    }
    return {200: {"description": text, "content": content}, **errors} if content else errors


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


_RATE: Final = {"type": "number", "description": "per second; -1: not limited"}
_GROUP: Final = {
    "type": "object",
    "properties": {**dict.fromkeys(DIMENSIONS, _RATE), "shadow": {"type": "boolean"}},
}
_NULLABLE_RATE: Final = {
    "anyOf": [{"type": "number", "exclusiveMinimum": 0, "maximum": 2**31 - 1}, {"enum": [-1, None]}]
}
GROUP_BODY: Final = {
    "requestBody": {
        "required": True,
        "description": "Names in any case of letters, null = absent; absent fields keep theirs, at first -1.",
        "content": _json(
            {
                "type": "object",
                "properties": {
                    **dict.fromkeys(DIMENSIONS, _NULLABLE_RATE),
                    "shadow": {"type": ["boolean", "null"], "description": "decide, do not enforce"},
                },
                "additionalProperties": False,
            }
        ),
    }
}
LIST: Final = _responses(
    401, 403, 503, content=_json({"type": "array", "items": {"type": "string"}}), text="Sorted"
)
VIEW: Final = _responses(401, 403, 404, 503, content=_json(_GROUP), text="The group")
CHANGE: Final = _responses(400, 401, 403, 408, 412, 413, 503)
ATTACH: Final = _responses(401, 403, 412, 503)
DELETE: Final = _responses(401, 403, 404, 412, 503)
ATTACHED: Final = _responses(
    401, 403, 412, 503, content={"text/plain": {"schema": {"type": "string"}}}, text="The bare name"
)
_PER_DIMENSION: Final = {"type": "object", "properties": {name: {"type": "number"} for name in DIMENSIONS}}
USAGE: Final = _responses(
    401,
    403,
    404,
    503,
    content=_json(
        {
            "type": "object",
            "properties": {
                "group": {"type": "string"},
                "limits": _PER_DIMENSION,
                "shadow": {"type": "boolean"},
                "round_ms": {"type": "integer"},
                "usage": _PER_DIMENSION,
                "share": _PER_DIMENSION,
                "throttledMs": _PER_DIMENSION,
                "members": {"type": "array", "items": {"type": "object"}},
            },
        }
    ),
    text="Rates per second",
)


def parameters(*names: str) -> dict[str, Any]:
    """Path parameters as OpenAPI has them; said here, since the routes read them by themselves."""
    schema = {"type": "string", "minLength": 1}
    return {
        "parameters": [{"name": name, "in": "path", "required": True, "schema": schema} for name in names]
    }


def complete(openapi: dict[str, Any]) -> None:
    """Add how to show a token, or that none may be needed."""
    schemes = {"token": {"type": "http", "scheme": "bearer"}}
    openapi.setdefault("components", {})["securitySchemes"] = schemes
    openapi["security"] = [{"token": []}, {}]


def page(openapi: dict[str, Any]) -> str:
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
