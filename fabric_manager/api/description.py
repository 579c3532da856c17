"""The API's description and the page that shows it; neither needs a network outside this machine."""

import json
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Response
from fastapi.openapi.utils import get_openapi
from fastapi.staticfiles import StaticFiles

from fabric_manager.api import examples, guide, links
from fabric_manager.api.answers import example
from fabric_manager.api.problems import MEDIA_TYPE
from fabric_manager.api.schemas import responses_of, simplify
from fabric_manager.api.views import Problem
from fabric_manager.domain.errors import Code

TITLE = "Fabric manager"
API_VERSION = "1.1.0"
SUMMARY = "Which host may use which bytes of pooled CXL memory."
STATIC = Path(str(files("fabric_manager.api"))) / "static"

JSON = "application/json"
MADE_UP = "Successful Response"

Operation = dict[str, Any]


def describe(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, made once."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=TITLE,
            version=API_VERSION,
            summary=SUMMARY,
            description=guide.DESCRIPTION.strip(),
            routes=app.routes,
            servers=[{"url": "/", "description": "The service that serves this description."}],
            license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        )
        add_problem_schema(document["components"]["schemas"])
        simplify(document)
        for operation in operations_of(document):
            drop_made_up_answer(operation)
        answers = Answers(operations_of(document))
        for operation in operations_of(document):
            group_by_task(operation)
            add_requests(operation)
            add_answers(operation, answers)
            share_problems(operation)
            add_links(operation)
        document["components"]["links"] = links.components()
        document["components"]["examples"] = {str(code): example(code) for code in Code}
        document["tags"] = [{"name": name, "description": text} for name, text in guide.TASKS.items()]
        app.openapi_schema = json.loads(json.dumps(document))  # plain values, each of its own
    return app.openapi_schema


def operations_of(document: dict[str, Any]) -> Iterator[Operation]:
    for methods in document["paths"].values():
        yield from methods.values()


def add_problem_schema(schemas: dict[str, Any]) -> None:
    problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas |= problem.pop("$defs", {})
    schemas["Problem"] = problem
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)


def group_by_task(operation: Operation) -> None:
    operation["tags"] = [guide.task_of(operation["operationId"], noun) for noun in operation["tags"]]


def add_requests(operation: Operation) -> None:
    """Named bodies, and a value for each part of the path."""
    operation_id = operation["operationId"]
    for parameter in operation.get("parameters", []):
        value = examples.parameter(operation_id, parameter["name"], parameter["schema"])
        if parameter["in"] == "path" and value is not None:
            parameter["schema"].pop("examples", None)
            parameter["example"] = value
    named = examples.requests(operation_id)
    for media in operation.get("requestBody", {}).get("content", {}).values():
        if named:
            media["examples"] = named


def schema_name(media: Mapping[str, Any]) -> str:
    """The name of the shared schema; empty when it is none."""
    return str(media.get("schema", {}).get("$ref", "")).rpartition("/")[2]


class Answers:
    """What a real service answered, by operation and status, and one of each schema for what could not be recorded."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self.given = examples.recorded()
        self.of_schema: dict[str, Any] = {}
        for operation in operations:
            for status, _, kind, media in responses_of(operation):
                found = self.given.get(operation["operationId"], {}).get(str(status))
                if kind == JSON and found is not None:
                    self.of_schema.setdefault(schema_name(media), found)

    def example(self, operation_id: str, status: int, media: Mapping[str, Any]) -> Any:
        own = self.given.get(operation_id, {}).get(str(status))
        return self.of_schema.get(schema_name(media)) if own is None else own


def add_answers(operation: Operation, answers: Answers) -> None:
    for status, _, kind, media in responses_of(operation):
        if kind == JSON and status < 300:
            example_of_it = answers.example(operation["operationId"], status, media)
            if example_of_it is not None:
                media["example"] = example_of_it


def drop_made_up_answer(operation: Operation) -> None:
    """The framework tells of a 200 with any body whenever a route does not speak of 200."""
    made_up = operation["responses"].get("200", {})
    if made_up.get("description") == MADE_UP:
        del operation["responses"]["200"]


def share_problems(operation: Operation) -> None:
    """Each code's example stands once in the document."""
    for _, _, kind, media in responses_of(operation):
        if kind == MEDIA_TYPE and "examples" in media:
            media["examples"] = {code: {"$ref": f"#/components/examples/{code}"} for code in media["examples"]}


def add_links(operation: Operation) -> None:
    for status, response, _, media in responses_of(operation):
        found = links.links_of(schema_name(media), from_operation=operation["operationId"])
        if status < 300 and found:
            response["links"] = found


def install(app: FastAPI) -> None:
    page = (STATIC / "docs.html").read_bytes()

    async def docs() -> Response:
        return Response(page, media_type="text/html; charset=utf-8")

    app.add_api_route("/docs", docs, include_in_schema=False)
    app.mount("/docs/assets", StaticFiles(directory=STATIC), name="docs-assets")
    app.openapi = lambda: describe(app)  # type: ignore[method-assign]
