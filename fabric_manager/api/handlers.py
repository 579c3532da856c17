"""Whatever a route may raise, as a problem."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from fabric_manager.api.problems import invalid_fields, problem_response
from fabric_manager.domain.errors import Code, FabricError

SOURCES = {"body", "query", "path", "header"}


def request_id(request: Request) -> str:
    return str(request.scope["state"]["request_id"])


def respond(request: Request, error: FabricError) -> Response:
    return problem_response(error, instance=request.url.path, request_id=request_id(request))


def field_name(loc: Sequence[Any]) -> str:
    """("body", "consumer", "kind") as consumer.kind; what concerns a whole source is called by the source."""
    names = loc[1:] if len(loc) > 1 and loc[0] in SOURCES else loc
    return ".".join(str(name) for name in names)


async def on_fabric_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, FabricError)
    return respond(request, error)


async def on_validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return respond(request, invalid_fields([(field_name(e["loc"]), message(request, e)) for e in error.errors()]))


def message(request: Request, error: Mapping[str, Any]) -> str:
    """What is wrong; of a parameter that nobody knows, which ones there are."""
    if error["type"] == "extra_forbidden" and error["loc"][0] == "query":
        known = sorted(name for name in query_names(request) if name != error["loc"][-1])
        return f"is no parameter here; there are {', '.join(known)}"
    return str(error["msg"])


def query_names(request: Request) -> Iterator[str]:
    for param in request.scope["route"].dependant.query_params:
        model = param.field_info.annotation
        yield from model.model_fields if isinstance(model, type) and issubclass(model, BaseModel) else [param.alias]


async def on_http_exception(request: Request, error: Exception) -> Response:
    """The framework's own refusals: an unknown path or method."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        refusal = FabricError(Code.METHOD_NOT_ALLOWED, f"{request.method} does not apply here; {allowed} does")
        response = respond(request, refusal)
        response.headers["Allow"] = allowed
        return response
    if error.status_code == 404:
        return respond(request, FabricError(Code.NOT_FOUND, "nothing has this path"))
    return respond(request, FabricError(Code.VALIDATION_FAILED, str(error.detail)))


def install(app: FastAPI) -> None:
    app.add_exception_handler(FabricError, on_fabric_error)
    app.add_exception_handler(RequestValidationError, on_validation_error)
    app.add_exception_handler(HTTPException, on_http_exception)
