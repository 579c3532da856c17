"""Plays every example of the API's description against a real service.

`python -m tests.documented` writes the answers down as the description's examples.
"""

import json
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from jsonschema import Draft202012Validator

from fabric_manager.api.application import openapi_document
from fabric_manager.api.examples import MADE_BY_THE_SERVICE, RECORDED
from tests.services import ROOT, Service

JSON = "application/json"
ITEMS_MAX = 2  # of a list in a recorded answer
WAIT_S = 20
METHODS = ("put", "post", "get", "patch", "delete")
# What has to be there before something else can be asked for. The rest goes by METHODS, in the order of the document.
FIRST = (
    "put_fabric",
    "put_pool",
    "put_device",
    "put_host",
    "put_allocation",
    "create_allocation",
    "put_allocation_binding",
    "report_node_state",
)
# What takes away what others show, at the very end; what refers to something goes before it.
LAST = (
    "delete_allocation_binding",
    "delete_allocation",
    "delete_host",
    "delete_device",
    "delete_pool",
    "delete_fabric",
)
SOCKET = r"simulator:/(tmp|run|var/tmp)/[^\"]+"  # where this machine put the rack's socket


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    method: str
    path: str
    what: Mapping[str, Any]

    @property
    def id(self) -> str:
        return str(self.what["operationId"])

    @property
    def place(self) -> tuple[int, int]:
        if self.id in FIRST:
            return 0, FIRST.index(self.id)
        if self.id in LAST:
            return 2, LAST.index(self.id)
        return 1, METHODS.index(self.method)

    def bodies(self) -> Iterator[tuple[str, Any]]:
        """Named request bodies; one without a body where the operation takes none."""
        body = self.what.get("requestBody")
        if body is None:
            yield "", None
            return
        for name, example in body["content"][JSON].get("examples", {}).items():
            yield name, example["value"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    operation: Operation
    example: str
    response: httpx.Response

    @property
    def told(self) -> str:
        name = f"{self.operation.id} {self.example}".strip()
        return f"{name}: {self.response.status_code} {self.response.text[:1000]}"


def operations(document: Mapping[str, Any]) -> list[Operation]:
    found = [
        Operation(method=method, path=path, what=what)
        for path, methods in document["paths"].items()
        for method, what in methods.items()
    ]
    return sorted(found, key=lambda operation: operation.place)


def play(service: Service, document: Mapping[str, Any]) -> Iterator[Played]:
    """Every example in an order that makes sense, each followed until its work is done."""
    headers = {"Authorization": f"Bearer {service.token}"}
    with httpx.Client(base_url=service.url, headers=headers, timeout=WAIT_S + 20) as http:
        for operation in operations(document):
            for name, body in operation.bodies():
                response = http.request(
                    operation.method.upper(), path_of(operation, http), json=body, headers=headers_of(operation)
                )
                yield Played(operation=operation, example=name, response=response)
                follow(http, response)


def path_of(operation: Operation, http: httpx.Client) -> str:
    """The path with the documented values; for an id that the service makes, that of the first one in the list."""
    path = operation.path
    for parameter in operation.what.get("parameters", []):
        if parameter["in"] != "path":
            continue
        value = parameter["example"]
        if value == MADE_BY_THE_SERVICE:
            collection = operation.path.partition("/{")[0]
            value = http.get(collection, params={"limit": 1}).json()["items"][0]["id"]
        path = path.replace("{" + parameter["name"] + "}", value)
    return path


def headers_of(operation: Operation) -> dict[str, str]:
    """Wait for the outcome where that is offered; change whatever generation there is."""
    names = {parameter["name"] for parameter in operation.what.get("parameters", []) if parameter["in"] == "header"}
    offered = {"Prefer": f"wait={WAIT_S}"}
    if operation.method == "patch":
        offered["If-Match"] = "*"
    return {name: value for name, value in offered.items() if name in names}


def follow(http: httpx.Client, response: httpx.Response) -> None:
    """Until the operation that an answer names has ended, along the documented link."""
    if not response.headers.get("content-type", "").startswith(JSON):
        return
    answer = response.json()
    named = answer.get("operation") if isinstance(answer, dict) else None
    if isinstance(named, dict):
        http.get(f"/v1/operations/{named['id']}", params={"wait": WAIT_S}).raise_for_status()


def faults(played: Played, document: Mapping[str, Any]) -> list[str]:
    """How the answer differs from what the description promises; a documented example is never refused."""
    response = played.response
    documented = played.operation.what["responses"].get(str(response.status_code))
    if documented is None or not response.is_success:
        return [f"not a documented success: {played.told}"]
    kind = response.headers.get("content-type", "").partition(";")[0]
    content = documented.get("content", {})
    if not content:
        return [] if not response.content else [f"a body where none is documented: {played.told}"]
    if kind not in content:
        return [f"{kind} is not documented: {played.told}"]
    schema = content[kind].get("schema", {})
    if kind != JSON:
        return []
    return [
        f"{error.json_path}: {error.message}: {played.told}" for error in errors_of(response.json(), schema, document)
    ]


def errors_of(value: Any, schema: Mapping[str, Any], document: Mapping[str, Any]) -> list[Any]:
    validator = Draft202012Validator(
        {**schema, "components": document["components"]}, format_checker=Draft202012Validator.FORMAT_CHECKER
    )
    return list(validator.iter_errors(value))


def shortened(value: Any) -> Any:
    """The same with a few items of each list: an example shows the shape."""
    if isinstance(value, dict):
        return {name: shortened(member) for name, member in value.items()}
    if isinstance(value, list):
        return [shortened(item) for item in value[:ITEMS_MAX]]
    return value


def record() -> None:
    """Rewrite the recorded answers from a service on the example rack."""
    document = openapi_document()
    answers: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as directory:
        service = Service(Path(directory) / "data")
        service.start()
        try:
            for played in play(service, document):
                print(played.told[:120], file=sys.stderr)
                kind = played.response.headers.get("content-type", "").partition(";")[0]
                if played.response.is_success and kind == JSON:
                    statuses = answers.setdefault(played.operation.id, {})
                    statuses.setdefault(str(played.response.status_code), shortened(played.response.json()))
        finally:
            service.stop()
    text = json.dumps(dict(sorted(answers.items())), indent=1, ensure_ascii=False)
    text = re.sub(SOCKET, "simulator:/run/rack-0.sock", text).replace(f"{ROOT}/", "")
    Path(str(RECORDED)).write_text(text + "\n")


if __name__ == "__main__":
    record()
