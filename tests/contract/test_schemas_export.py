"""The committed files are what the models say, and mean the same to a JSON Schema validator."""

import json
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.asyncapi import REQUEST_FILE, RESULT_FILE
from schemas.errors import MessageError
from schemas.examples import request_example, result_example
from schemas.export import documents, drift, write
from schemas.messages import parse_classify
from schemas.results import ClassifyResult

COMMITTED = Path(__file__).parents[2] / "schemas" / "json"
TICKET = {"id": "a", "text": "hello"}


def validator(name: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json.loads((COMMITTED / name).read_bytes()))


def test_the_committed_files_match_the_models() -> None:
    assert drift(COMMITTED) == [], "run `batchmill schema` and commit what it writes"


def test_drift_names_missing_changed_and_foreign_files(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / REQUEST_FILE).unlink()
    (tmp_path / RESULT_FILE).write_text("{}")
    (tmp_path / "zz-old.json").write_text("{}")
    assert drift(tmp_path) == [REQUEST_FILE, RESULT_FILE, "zz-old.json"]


def test_writing_makes_the_directory_and_gives_the_paths(tmp_path: Path) -> None:
    paths = write(tmp_path / "new" / "json")
    assert {path.name for path in paths} == documents().keys()
    assert drift(tmp_path / "new" / "json") == []


@pytest.mark.parametrize("name", sorted(name for name in documents() if name.endswith(".schema.json")))
def test_every_schema_is_a_valid_json_schema(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(documents()[name])


def test_every_reference_of_the_asyncapi_document_leads_somewhere() -> None:
    document = documents()["asyncapi.json"]
    for reference in references(document):
        file, _, pointer = reference.partition("#")
        target = documents()[file.removeprefix("./")] if file else document
        for step in pointer.split("/")[1:]:
            target = target[step]


def references(value: object) -> list[str]:
    match value:
        case {"$ref": str(reference)}:
            return [reference]
        case dict():
            return [reference for inner in value.values() for reference in references(inner)]
        case list():
            return [reference for inner in value for reference in references(inner)]
    return []


def test_the_examples_are_right_for_the_models_and_for_the_schemas() -> None:
    parse_classify((), request_example())
    ClassifyResult.model_validate_json(json.dumps(result_example()))
    validator(REQUEST_FILE).validate(request_example())
    validator(RESULT_FILE).validate(result_example())


options = st.none() | st.booleans() | st.integers(-2, 200) | st.floats(allow_nan=False) | st.text(max_size=5)
texts = st.fixed_dictionaries({}, optional={name: st.text(max_size=5) for name in ("text", "subject", "body", "txt")})
requests = st.fixed_dictionaries(
    {
        "tickets": st.lists(texts, max_size=3).map(
            lambda tickets: [{"id": str(number), **ticket} for number, ticket in enumerate(tickets)]
        )
    },
    optional={
        "model": options,
        "top_k": options.filter(lambda value: not isinstance(value, float)),  # JSON knows no 1.0 beside 1
        "truncation": options | st.just("head"),
        "threshold": options,
        "schema_version": options.filter(lambda value: not isinstance(value, float)),
        "other": options,
    },
)


@given(requests)
@settings(deadline=None)
def test_the_schema_and_the_worker_accept_the_same_messages(request: dict[str, object]) -> None:
    try:
        parsed = parse_classify((), request)
    except MessageError:
        accepted = False
    else:  # a ticket without any text is an item's error at the worker, and wrong for the schema
        accepted = all(len(ticket.model_fields_set) > 1 for ticket in parsed.tickets)
    assert validator(REQUEST_FILE).is_valid(request) == accepted


@pytest.mark.parametrize("text", [None, 5, True, [], {}], ids=repr)
def test_the_schema_warns_of_a_text_that_the_worker_would_refuse(text: object) -> None:
    assert validator(REQUEST_FILE).is_valid({"tickets": [TICKET]})
    assert not validator(REQUEST_FILE).is_valid({"tickets": [{"id": "a", "text": text}]})
