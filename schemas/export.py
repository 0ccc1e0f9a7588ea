"""The contract as files for other languages: JSON Schemas, and an AsyncAPI document that ties them together.

They are generated from the models and committed, so that a change of the contract shows in a review;
`drift` says which file no longer matches. This module does not know how a message is sent.
"""

import json
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, JsonValue
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from schemas import asyncapi, bulk_examples, ocr_examples
from schemas.bulk import BulkAnswer, BulkClassify, BulkShard
from schemas.bulk_manifest import BulkManifest, PartRecord
from schemas.bulk_ocr import BulkOcr
from schemas.bulk_plan import BulkPlan
from schemas.examples import request_example, result_example
from schemas.manifest import ModelManifest
from schemas.messages import ClassifyTickets
from schemas.ocr import OcrDocuments, OcrResult
from schemas.ocr_manifest import OcrManifest
from schemas.results import ClassifyResult

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

Document = dict[str, Any]  # JSON, as pydantic types its generated schemas


def json_schema(model: type[BaseModel]) -> Document:
    """The JSON Schema of a model, without pydantic's generated titles."""
    return model.model_json_schema(schema_generator=_PlainJsonSchema)


def documents() -> dict[str, Document]:
    """Every exported document by its file name."""
    return {
        asyncapi.REQUEST_FILE: _schema_document(ClassifyTickets, request_example()),
        asyncapi.RESULT_FILE: _schema_document(ClassifyResult, result_example()),
        asyncapi.OCR_REQUEST_FILE: _schema_document(OcrDocuments, ocr_examples.request_example()),
        asyncapi.OCR_RESULT_FILE: _schema_document(OcrResult, ocr_examples.result_example()),
        "model-manifest.schema.json": _schema_document(ModelManifest),
        "ocr-model-manifest.schema.json": _schema_document(OcrManifest),
        **_bulk_documents(),
        "asyncapi.json": asyncapi.document(),
    }


def _bulk_documents() -> dict[str, Document]:
    return {
        name: _schema_document(model, bulk_examples.example(example))
        for name, model, example in (
            (asyncapi.BULK_REQUEST_FILE, BulkClassify, bulk_examples.REQUEST),
            (asyncapi.BULK_RESULT_FILE, BulkAnswer, bulk_examples.ANSWER),
            (asyncapi.BULK_OCR_REQUEST_FILE, BulkOcr, bulk_examples.OCR_REQUEST),
            ("bulk-shard.request.schema.json", BulkShard, bulk_examples.SHARD),
            ("bulk-plan.schema.json", BulkPlan, bulk_examples.PLAN),
            ("bulk-part.schema.json", PartRecord, bulk_examples.RECORD),
            ("bulk-manifest.schema.json", BulkManifest, bulk_examples.MANIFEST),
        )
    }


def write(directory: Path) -> list[Path]:
    """Write every document into `directory`, which is made if it is missing; gives the files' paths."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, document in documents().items():
        path = directory / name
        path.write_bytes(_encoded(document))
        paths.append(path)
    return paths


def drift(directory: Path) -> list[str]:
    """The names of files in `directory` that are missing, differ from the models, or are none of ours."""
    expected = {name: _encoded(document) for name, document in documents().items()}
    found = {path.name: path.read_bytes() for path in directory.glob("*.json")}
    return sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))


def _schema_document(model: type[BaseModel], *examples: JsonValue) -> Document:
    document = {"$schema": DIALECT, **json_schema(model)}
    return {**document, "examples": list(examples)} if examples else document


def _encoded(document: Document) -> bytes:
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()


class _PlainJsonSchema(GenerateJsonSchema):
    """Pydantic's schema without a title per field, and without `default: null`, which says nothing."""

    def field_title_should_be_set(self, schema: object) -> bool:  # noqa: ARG002 - overrides pydantic's
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        if schema.get("default", ...) is None:
            return self.generate_inner(schema["schema"])
        return super().default_schema(schema)
