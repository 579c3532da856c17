"""The framework's schemas in fewer words: generators make better code of them, and people read them."""

from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]
NULL = {"type": "null"}
INT32_MAX = (1 << 31) - 1
NOISE = ("title", "examples")  # made-up titles; the examples that are played stand with the operations


def plainer(schema: Schema, *, nullable: bool = True) -> Schema:
    """The same schema with `type: [string, "null"]` for a choice between a type and null, and no noise.

    `nullable` false, for parameters: what stands in a URL or header is there or not, and never null.
    """
    out = {name: value for name, value in schema.items() if name not in NOISE}
    for name in ("properties", "$defs"):
        if name in out:
            out[name] = {key: plainer(value) for key, value in out[name].items()}
    for name in ("items", "additionalProperties"):
        if isinstance(out.get(name), dict):
            out[name] = plainer(out[name])
    for name in ("anyOf", "oneOf", "allOf"):
        if name in out:
            out[name] = [plainer(choice) for choice in out[name]]
    if out.get("type") == "integer" and out.get("maximum", INT32_MAX + 1) > INT32_MAX:
        out["format"] = "int64"  # else some generators make 32 bits of it, and 4 GiB do not fit
    return without_null_choice(out, nullable=nullable)


def without_null_choice(schema: Schema, *, nullable: bool) -> Schema:
    choices = schema.get("anyOf", [])
    if NULL not in choices or len(choices) != 2:
        return schema
    (other,) = (choice for choice in choices if choice != NULL)
    rest = {name: value for name, value in schema.items() if name != "anyOf"}
    if not nullable:
        return {name: value for name, value in (other | rest).items() if name != "default" or value is not None}
    if not isinstance(other.get("type"), str) or "const" in other:
        return schema  # a reference has no room for a second type
    merged: Schema = other | {"type": [other["type"], "null"]} | rest
    return merged | ({"enum": [*other["enum"], None]} if "enum" in other else {})


def responses_of(operation: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any], str, dict[str, Any]]]:
    """Status, response, media type and its description, of every answer that has a body."""
    for status, response in operation["responses"].items():
        for kind, media in response.get("content", {}).items():
            yield int(status), response, kind, media


def simplify(document: dict[str, Any]) -> None:
    """In place, all schemas of an OpenAPI document."""
    schemas = document["components"]["schemas"]
    for name, schema in schemas.items():
        schemas[name] = {"title": schema["title"]} | plainer(schema) if "title" in schema else plainer(schema)
    for methods in document["paths"].values():
        for operation in methods.values():
            for parameter in operation.get("parameters", []):
                parameter["schema"] = plainer(parameter["schema"], nullable=False)
                parameter["schema"].pop("description", None)  # the parameter has it
                if parameter["in"] == "header":
                    parameter["name"] = parameter["name"].title()
            for media in operation.get("requestBody", {}).get("content", {}).values():
                media["schema"] = plainer(media["schema"])
            for _, _, _, media in responses_of(operation):
                if "schema" in media:
                    media["schema"] = plainer(media["schema"])
