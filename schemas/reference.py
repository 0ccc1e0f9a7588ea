"""The tables and examples of `docs/contract.md`, generated from the models so that they cannot differ.

A page marks the place of a block with `<!-- generated: NAME -->` and `<!-- end -->`; `refresh` fills
it, and a test fails while a page is not as `refresh` would leave it. To bring a page up to date:

    python -m schemas.reference docs/contract.md
"""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from schemas import bulk_examples, ocr_examples
from schemas.bulk import BulkAnswer, BulkClassify
from schemas.bulk_manifest import BulkManifest, PageTally, Part, Tally
from schemas.bulk_ocr import BulkOcr
from schemas.bulk_plan import InputFile
from schemas.catalogue import ITEM_CODES, MESSAGE_CODES, STORE_CODES, Explanation
from schemas.errors import ErrorCode, ItemError
from schemas.examples import request_example, result_example
from schemas.export import json_schema
from schemas.messages import ClassifyTickets, Ticket
from schemas.ocr import Document, DocumentResult, Line, OcrDocuments, OcrResult, OcrTimings, PageResult
from schemas.results import ClassifyResult, LabelScore, ModelInfo, TicketResult, Timings

Schema = Mapping[str, Any]  # JSON as pydantic generates it

_TABLED: Final = (
    ClassifyTickets,
    Ticket,
    ClassifyResult,
    TicketResult,
    LabelScore,
    ItemError,
    ModelInfo,
    Timings,
    OcrDocuments,
    Document,
    OcrResult,
    DocumentResult,
    PageResult,
    Line,
    OcrTimings,
    BulkClassify,
    BulkOcr,
    BulkAnswer,
    BulkManifest,
    Part,
    Tally,
    PageTally,
    InputFile,
)

_BLOCK: Final = re.compile(r"(<!-- generated: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def refresh(page: str) -> str:
    """The page with every generated block brought up to date.

    Raises:
        KeyError: the page marks a block that does not exist.
    """
    contents = blocks()
    return _BLOCK.sub(lambda found: f"{found[1]}{contents[found[2]]}{found[3]}", page)


def blocks() -> dict[str, str]:
    """Every block by its name: Markdown that ends with a newline."""
    return {
        **{model.__name__: field_table(model) for model in _TABLED},
        "item-errors": error_table(ITEM_CODES),
        "store-errors": error_table(STORE_CODES),
        "message-errors": error_table(MESSAGE_CODES),
        "request-example": _json_block(request_example()),
        "result-example": _json_block(result_example()),
        "ocr-request-example": _json_block(ocr_examples.request_example()),
        "ocr-result-example": _json_block(ocr_examples.result_example()),
        "bulk-request-example": _json_block(bulk_examples.example(bulk_examples.REQUEST)),
        "bulk-ocr-request-example": _json_block(bulk_examples.example(bulk_examples.OCR_REQUEST)),
    }


def error_table(codes: Mapping[ErrorCode, Explanation]) -> str:
    """A Markdown table of error codes, one row each."""
    rows = [f"| `{code}` | {what.meaning} | {what.remedy} |" for code, what in codes.items()]
    return _lines("| code | what it means | what to do |", "|---|---|---|", *rows)


def field_table(model: type[BaseModel]) -> str:
    """A Markdown table of a model's fields: name, type with its limits, default, meaning."""
    schema = json_schema(model)
    required = schema.get("required", [])
    rows = [_row(name, field, required=name in required) for name, field in schema["properties"].items()]
    return _lines("| field | type | default | meaning |", "|---|---|---|---|", *rows)


def _row(name: str, schema: Schema, *, required: bool) -> str:
    return f"| `{name}` | {_type(schema)} | {_default(schema, required=required)} | {schema['description']} |"


def _default(schema: Schema, *, required: bool) -> str:
    if required:
        return "required"
    return f"`{json.dumps(schema['default'])}`" if "default" in schema else "none"


def _type(schema: Schema) -> str:
    match schema:
        case {"anyOf": choices}:
            return " or ".join(_type(choice) for choice in reversed(choices))  # null first
        case {"$ref": reference}:
            return f"`{reference.rpartition('/')[2]}`"
        case {"enum": values}:
            return " or ".join(f"`{json.dumps(value)}`" for value in values)
        case {"type": "array", "items": items}:
            return f"list of {_grouped(_type(items))}{_limits(schema)}"
        case {"type": "object", "additionalProperties": {} as values}:
            return f"object of {_type(values)}"
        case _:
            return f"{schema['type']}{_limits(schema)}"


def _grouped(type_text: str) -> str:
    return f"({type_text})" if "," in type_text else type_text


_LIMIT_KEYS: Final = {
    "array": ("minItems", "maxItems", ""),
    "integer": ("minimum", "maximum", ""),
    "number": ("minimum", "maximum", ""),
    "string": ("minLength", "maxLength", " characters"),
}


def _limits(schema: Schema) -> str:
    low_key, high_key, unit = _LIMIT_KEYS.get(schema["type"], ("", "", ""))
    low, high = schema.get(low_key), schema.get(high_key)
    if low is None and high is None:
        return ""
    if high is None:
        return f", {low:,} or more{unit}"
    if low is None:
        return f", up to {high:,}{unit}"
    return f", {low:,} to {high:,}{unit}" if high != low else f", only {low:,}{unit}"


def _json_block(value: object) -> str:
    return _lines("```json", json.dumps(value, indent=2, ensure_ascii=False), "```")


def _lines(*lines: str) -> str:
    return "\n".join([*lines, ""])


def main(paths: list[str]) -> None:
    """Bring the pages at `paths` up to date."""
    for path in map(Path, paths):
        path.write_text(refresh(path.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
