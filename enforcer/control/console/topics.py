"""What is wrong with Weir's own topics, as the process has seen it last."""

from dataclasses import asdict

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from enforcer.control.parts import Parts


class Fault(BaseModel):
    """One thing that is wrong, and the command that mends it."""

    topic: str
    fault: str
    what: str
    mend: str


def topic_routes(parts: Parts) -> APIRouter:
    """The one endpoint."""
    router = APIRouter(tags=["Who waits, and why"])

    @router.get(
        "/weir/v1/topics",
        response_model=list[Fault],
        summary="What is wrong with Weir's own topics, and what mends it",
    )
    async def topics() -> Response:
        return JSONResponse([asdict(each) for each in parts.topic_faults()])

    return router
