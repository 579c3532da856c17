"""The API's description and the page that shows it; neither needs a network outside this machine."""

from importlib.resources import files
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Response
from fastapi.openapi.utils import get_openapi
from fastapi.staticfiles import StaticFiles

from fabric_manager.api.views import Problem

TITLE = "Fabric manager"
API_VERSION = "1.0.0"
SUMMARY = "Which host may use which bytes of pooled CXL memory."
DESCRIPTION = """
Sizes are whole bytes. Every refusal is a problem (RFC 9457) with a stable `code`; `retryable` and `terminal_for` say
what to do next. A key is chosen by the caller, and asking again with it gets the same allocation.
"""
TAGS = [
    {"name": "allocations", "description": "Capacity that somebody holds."},
    {"name": "pools", "description": "Devices of one kind, with their bytes."},
    {"name": "devices", "description": "Memory devices."},
    {"name": "logical-devices", "description": "Slices of multi-logical devices."},
    {"name": "extents", "description": "Runs of dynamic-capacity devices."},
    {"name": "attachments", "description": "Where hosts reach devices."},
    {"name": "hosts", "description": "Machines on upstream ports."},
    {"name": "fabrics", "description": "What each driver endpoint manages."},
    {"name": "operations", "description": "Work that is going on, and how it ended."},
    {"name": "events", "description": "What changed, in order and without gaps."},
    {"name": "service", "description": "The service itself."},
]
STATIC = Path(str(files("fabric_manager.api"))) / "static"


def describe(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, made once."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=TITLE,
            version=API_VERSION,
            summary=SUMMARY,
            description=DESCRIPTION.strip(),
            routes=app.routes,
            tags=TAGS,
            license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        )
        schemas = document["components"]["schemas"]
        problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas |= problem.pop("$defs", {})
        schemas["Problem"] = problem
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        app.openapi_schema = document
    return app.openapi_schema


def install(app: FastAPI) -> None:
    page = (STATIC / "docs.html").read_bytes()

    async def docs() -> Response:
        return Response(page, media_type="text/html; charset=utf-8")

    app.add_api_route("/docs", docs, include_in_schema=False)
    app.mount("/docs/assets", StaticFiles(directory=STATIC), name="docs-assets")
    app.openapi = lambda: describe(app)  # type: ignore[method-assign]
