"""The OpenAPI document of the JSON API, generated from the routes and the types of their documents."""

from collections.abc import Sequence
from typing import Any, Final

from inturn.console.documents import OF_PAGES, ActionsDocument, DecideDocument, DoneDocument, ErrorDocument, schemas
from inturn.console.routes import ACTIONS, PAGES, TRY, ActionRoute, PageRoute, RouteField

_ERRORS: Final = {
    "400": "a field is missing or not valid, or the store does not allow the request",
    "401": "not logged in",
    "403": "missing rights, or a request from another site",
    "429": "too many wrong tokens from this address",
    "503": "a store or the action log is unavailable",
}
_OF_POSTS: Final = {
    "408": "the body was not received in time",
    "413": "the request is too large",
    "415": "the body is not application/json",
}

_IF_SEEN: Final = {"409": "the group, or every group of the list, has changed since it was shown"}


def document(*, has_log_in: bool = True) -> dict[str, Any]:
    """Return the document, OpenAPI 3.1.

    Args:
        has_log_in: whether a token is needed.
    """
    references, components = schemas()
    errors = references[ErrorDocument]
    paths: dict[str, Any] = {
        f"/api/{route.name}": {"get": _read(route, references[OF_PAGES[route.name]], errors)} for route in PAGES
    }
    paths["/api/actions"] = {
        "get": {
            "operationId": "actions",
            "summary": "Return the latest entries of the action log.",
            "parameters": [],
            "responses": _responses(references[ActionsDocument], errors, _ERRORS),
        }
    }
    tried = "Run a decision dry with the user's handler."
    paths["/api/try"] = {"post": _write(TRY, tried, references[OF_PAGES["try"]], errors)}
    for action in ACTIONS:
        outcome_schema = references[DecideDocument if action.page == "decided" else DoneDocument]
        paths[f"/api{action.path}"] = {"post": _write(action, _first_line(action.act), outcome_schema, errors)}
    return {
        "openapi": "3.1.0",
        "info": {"title": "inturn console", "version": "1"},
        "security": [{"token": []}] if has_log_in else [],
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": components,
        },
        "paths": paths,
    }


def _read(route: PageRoute, schema: dict[str, Any], error: dict[str, Any]) -> dict[str, Any]:
    return {
        "operationId": route.name,
        "summary": _first_line(route.view),
        "parameters": [
            {
                "name": field.name,
                "in": "query",
                "required": field.is_needed,
                "description": field.about,
                "schema": _schema(field),
            }
            for field in route.fields
        ],
        "responses": _responses(schema, error, _ERRORS),
    }


def _write(
    route: PageRoute | ActionRoute, summary: str, schema: dict[str, Any], error: dict[str, Any]
) -> dict[str, Any]:
    is_seen = any(field.name == "seen" for field in route.fields)
    return {
        "operationId": f"post_{route.path.strip('/').replace('/', '_')}",
        "summary": summary,
        "requestBody": {"required": True, "content": {"application/json": {"schema": _body(route.fields)}}},
        "responses": _responses(schema, error, _ERRORS | _OF_POSTS | (_IF_SEEN if is_seen else {})),
    }


def _body(fields: Sequence[RouteField]) -> dict[str, Any]:
    return {
        "type": "object",
        "required": [field.name for field in fields if field.is_needed],
        "properties": {field.name: _schema(field) | {"description": field.about} for field in fields},
        "additionalProperties": False,
    }


def _schema(field: RouteField) -> dict[str, Any]:
    return {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1} if field.is_number else {"type": "string"}


def _responses(schema: dict[str, Any], error: dict[str, Any], errors: dict[str, str]) -> dict[str, Any]:
    responses = {status: _answer(about, error) for status, about in errors.items()}
    return {"200": _answer("the requested document, or the result of the action", schema), **responses}


def _answer(about: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": about, "content": {"application/json": {"schema": schema}}}


def _first_line(view: object) -> str:
    return (view.__doc__ or "").split("\n", 1)[0]
