"""The OpenAPI document and the page that shows it."""

import re
from pathlib import Path
from typing import Any

import httpx
import yaml

from fabric_manager.api.application import openapi_document
from fabric_manager.domain.errors import Code
from tests.api.conftest import Api

COMMITTED = Path(__file__).parents[2] / "openapi" / "fabric-manager.yaml"
DOCUMENT = openapi_document()
OPEN = {"/healthz", "/readyz"}
# Codes of which only other releases' operations speak, or that stand in a `failure` and in no answer.
UNUSED = {
    Code.DEADLINE_EXCEEDED,
    Code.EVENTS_EXPIRED,
    Code.FABRIC_UNREACHABLE,
    Code.ISOLATION_UNSATISFIABLE,
    Code.METHOD_NOT_ALLOWED,
    Code.NODE_UNREADY,
    Code.OPERATION_IN_PROGRESS,
    Code.PRECONDITION_REQUIRED,
    Code.QOS_UNAVAILABLE,
    Code.SWITCH_BUSY,
}


def operations() -> list[tuple[str, str, dict[str, Any]]]:
    return [(path, method, what) for path, methods in DOCUMENT["paths"].items() for method, what in methods.items()]


def test_the_committed_one_is_what_the_code_serves() -> None:
    assert yaml.safe_load(COMMITTED.read_text()) == DOCUMENT, "run `make openapi`"


async def test_the_service_serves_it_to_anybody(api: Api) -> None:
    async with httpx.AsyncClient(base_url=api.url) as nobody:
        assert (await nobody.get("/openapi.json")).json() == DOCUMENT


def test_operations_have_ids_tags_and_summaries() -> None:
    ids = [what["operationId"] for _, _, what in operations()]
    assert len(set(ids)) == len(ids)
    for path, method, what in operations():
        assert re.fullmatch(r"[a-z_]+", what["operationId"]), (method, path)
        assert what["summary"], (method, path)
        assert set(what["tags"]) <= {tag["name"] for tag in DOCUMENT["tags"]}, (method, path)


def test_path_parameters_say_what_they_name() -> None:
    for path in DOCUMENT["paths"]:
        for name in re.findall(r"{(\w+)}", path):
            assert name.endswith(("_id", "_key")), path


def test_every_operation_lists_its_codes_as_problems_and_wants_the_token() -> None:
    for path, _, what in operations():
        if path in OPEN:
            assert "security" not in what
            continue
        assert what["security"] == [{"bearer": []}], path
        assert {"401", "422", "503"} <= set(what["responses"]), path
        for status, answer in what["responses"].items():
            if int(status) >= 400:
                (media,) = answer["content"]
                assert media == "application/problem+json", path
                for code, example in answer["content"][media]["examples"].items():
                    assert example == {"$ref": f"#/components/examples/{code}"}, path
                    assert DOCUMENT["components"]["examples"][code]["value"]["status"] == int(status), (path, code)


def test_every_code_is_documented_somewhere() -> None:
    text = str(DOCUMENT)
    assert {code for code in Code if f"'{code}'" not in text} <= UNUSED


async def test_the_page_needs_nothing_from_outside(api: Api) -> None:
    async with httpx.AsyncClient(base_url=api.url) as nobody:
        page = await nobody.get("/docs")
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert "://" not in page.text
        assert not re.search(r"<script(?![^>]* src=)|<style| on\w+=| style=", page.text)
        for asset in re.findall(r'(?:href|src)="([^"]+)"', page.text):
            response = await nobody.get(asset)
            assert response.status_code == 200, asset
            assert "max-age" in response.headers["cache-control"]
        assert "validatorUrl: null" in (await nobody.get("/docs/assets/docs.js")).text


async def test_assets_do_not_lead_out_of_their_directory(api: Api) -> None:
    for path in ("/docs/assets/../problems.py", "/docs/assets/%2e%2e/problems.py", "/docs/assets/nothing.js"):
        assert (await api.http.get(path)).status_code == 404
