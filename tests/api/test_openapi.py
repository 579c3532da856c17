"""The OpenAPI document as a product: valid to strangers, complete for people, plain for generators."""

import copy
import re
from collections.abc import Iterator
from typing import Any

import pytest
from aiopenapi3 import OpenAPI
from openapi_spec_validator import validate

from fabric_manager.api import guide, links
from fabric_manager.api.application import openapi_document
from fabric_manager.api.problems import PROBLEMS
from tests.documented import JSON, Operation, errors_of, operations

DOCUMENT = openapi_document()
OPERATIONS = operations(DOCUMENT)
STREAM = "text/event-stream"

every_operation = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.id)


def schemas(value: Any) -> Iterator[dict[str, Any]]:
    """Every object of the document that could be a schema; examples are left out."""
    if isinstance(value, list):
        for item in value:
            yield from schemas(item)
    elif isinstance(value, dict):
        yield value
        for name, member in value.items():
            if name not in ("example", "examples"):
                yield from schemas(member)


def answers(operation: Operation) -> Iterator[tuple[int, str, dict[str, Any]]]:
    for status, response in operation.what["responses"].items():
        for kind, media in response.get("content", {}).items():
            yield int(status), kind, media


def test_two_validators_that_share_no_code_accept_it() -> None:
    validate(DOCUMENT)
    OpenAPI("http://localhost/openapi.json", copy.deepcopy(DOCUMENT))


@pytest.mark.parametrize("accepts", [validate, lambda document: OpenAPI("http://localhost/", document)])
def test_either_validator_refuses_a_broken_one(accepts: Any) -> None:
    content = {JSON: {"schema": {"$ref": "#/components/schemas/Nothing"}}}
    operation = {"operationId": "get_it", "responses": {"200": {"description": "It.", "content": content}}}
    broken = {"openapi": "3.1.0", "info": DOCUMENT["info"], "paths": {"/it": {"get": operation}}, "components": {}}
    with pytest.raises(Exception, match="Nothing"):
        accepts(broken)


@every_operation
def test_every_operation_is_grouped_by_a_task(operation: Operation) -> None:
    (task,) = operation.what["tags"]
    assert task in guide.TASKS, f"give {operation.id} a task in api/guide.py"


def test_every_task_and_every_word_of_the_grouping_is_used() -> None:
    assert {operation.what["tags"][0] for operation in OPERATIONS} == set(guide.TASKS)
    assert set(guide.TASK_OF_OPERATION) <= {operation.id for operation in OPERATIONS}


@every_operation
def test_every_body_has_examples_that_its_schema_allows(operation: Operation) -> None:
    body = operation.what.get("requestBody")
    if body is None:
        return
    examples = body["content"][JSON].get("examples", {})
    assert examples, f"give {operation.id} a request in api/examples.py"
    for name, example in examples.items():
        assert example["summary"], name
        assert errors_of(example["value"], body["content"][JSON]["schema"], DOCUMENT) == [], name


@every_operation
def test_every_part_of_a_path_has_a_value_to_try(operation: Operation) -> None:
    for parameter in operation.what.get("parameters", []):
        if parameter["in"] == "path":
            assert "example" in parameter, f"give {parameter['name']} of {operation.id} a value in api/examples.py"
            assert errors_of(parameter["example"], parameter["schema"], DOCUMENT) == []


@every_operation
def test_every_answer_that_worked_has_an_example_that_its_schema_allows(operation: Operation) -> None:
    for status, kind, media in answers(operation):
        if status < 300 and kind == JSON:
            assert "example" in media, f"run `make examples`: {operation.id} {status} has none"
            assert errors_of(media["example"], media["schema"], DOCUMENT) == []


@every_operation
def test_every_refusal_lists_its_codes_each_with_an_example(operation: Operation) -> None:
    if "security" in operation.what:
        assert (
            "unauthenticated" in operation.what["responses"]["401"]["content"]["application/problem+json"]["examples"]
        )
    for status, kind, media in answers(operation):
        if kind != "application/problem+json":
            continue
        assert media["examples"]
        for code in media["examples"]:
            example = DOCUMENT["components"]["examples"][code]["value"]
            assert (example["code"], example["status"]) == (code, status)
            assert errors_of(example, media["schema"], DOCUMENT) == []
            assert f"`{code}`" in operation.what["responses"][str(status)]["description"]


def test_every_code_has_its_example() -> None:
    assert set(DOCUMENT["components"]["examples"]) == {str(code) for code in PROBLEMS}


def test_every_link_leads_to_an_operation_and_fills_its_path() -> None:
    known = {operation.id: operation for operation in OPERATIONS}
    for link in DOCUMENT["components"]["links"].values():
        target = known[link["operationId"]]
        assert set(link["parameters"]) == set(re.findall(r"{(\w+)}", target.path))


def test_every_link_starts_from_a_member_of_its_answer() -> None:
    for schema, targets in links.LINKS.items():
        members = DOCUMENT["components"]["schemas"][schema]["properties"]
        for parameters in targets.values():
            for source in parameters.values():
                assert source.removeprefix("$response.body#/").partition("/")[0] in members, (schema, source)


def test_the_allocation_leads_to_all_that_follows() -> None:
    response = DOCUMENT["paths"]["/v1/allocations/{allocation_key}"]["put"]["responses"]["201"]
    assert {"get_allocation", "delete_allocation", "get_allocation_timeline", "get_operation"} <= set(response["links"])


def test_null_is_a_type_and_not_a_choice() -> None:
    for schema in schemas(DOCUMENT):
        if {"type": "null"} in (choices := schema.get("anyOf", [])):
            (other,) = (choice for choice in choices if choice != {"type": "null"})
            assert "$ref" in other, schema


def test_a_number_that_may_be_large_says_so() -> None:
    size = DOCUMENT["components"]["schemas"]["AllocationRequest"]["properties"]["size_bytes"]
    assert (size["type"], size["format"]) == ("integer", "int64")
    for schema in schemas(DOCUMENT["components"]["schemas"]):
        if schema.get("type") in ("integer", ["integer", "null"]):
            assert schema.get("format") == "int64" or schema["maximum"] < 1 << 31


def test_nothing_is_only_ever_null() -> None:
    """Generators of typed languages have no name for such a type."""
    for name, schema in DOCUMENT["components"]["schemas"].items():
        for member, its_schema in schema.get("properties", {}).items():
            assert its_schema.get("type") != "null", (name, member)


def test_what_stands_in_a_url_or_header_is_never_null() -> None:
    for operation in OPERATIONS:
        for parameter in operation.what.get("parameters", []):
            assert "null" not in str(parameter["schema"]), (operation.id, parameter["name"])


@every_operation
def test_a_stream_is_described_by_a_plain_schema(operation: Operation) -> None:
    for status, kind, media in answers(operation):
        if kind == STREAM and status < 300:
            assert media["schema"]["type"] == "string"


def test_the_guide_tells_how_to_begin_and_works_wherever_it_is_served() -> None:
    assert DOCUMENT["servers"][0]["url"] == "/"
    for word in ("make demo", "admin.token", "Authorization: Bearer", "## Phases", "retryable", "terminal_for"):
        assert word in DOCUMENT["info"]["description"]
