"""One request to read documents and its result: what the JSON Schemas, the docs and the tests show.

They are built by the models, so an example that breaks the contract cannot be imported.
"""

from typing import Final

from pydantic import JsonValue

from schemas.errors import ErrorCode, ItemError
from schemas.ocr import Document, DocumentResult, Line, OcrDocuments, OcrResult, OcrTimings, PageResult
from schemas.results import ModelInfo

_REQUEST: Final = OcrDocuments(
    documents=[
        Document(id="T-1001", uri="s3://scans/2026/T-1001.pdf", first_page=1, last_page=2),
        Document(id="T-1002", content="iVBORw0KGgo="),
    ]
)

_RESULT: Final = OcrResult(
    schema_version=1,
    results=[
        DocumentResult(
            id="T-1001",
            pages=[
                PageResult(
                    page=1,
                    width=1654,
                    height=2339,
                    rotation=0,
                    lines=[
                        Line(
                            text="Rechnung Nr. 4711 vom 02.01.2026",
                            confidence=0.9871,
                            box=[[141.0, 180.5], [806.0, 180.5], [806.0, 219.0], [141.0, 219.0]],
                        )
                    ],
                ),
                PageResult(
                    page=2,
                    width=1654,
                    height=2339,
                    rotation=90,
                    lines=[
                        Line(
                            text="Bitte prüfen Sie den Betrag.",
                            confidence=0.9714,
                            box=[[140.0, 302.0], [702.5, 304.0], [702.5, 341.0], [140.0, 339.0]],
                        )
                    ],
                ),
            ],
            text="Rechnung Nr. 4711 vom 02.01.2026\fBitte prüfen Sie den Betrag.",
        ),
        DocumentResult(
            id="T-1002",
            pages=[],
            text="",
            error=ItemError(code=ErrorCode.DAMAGED_DOCUMENT, message="the document ends within its header"),
        ),
    ],
    model=ModelInfo(
        name="ocr-accurate",
        version="1",
        sha256="3a7e" * 16,
        precision="fp32",
        provider="CPUExecutionProvider",
        runtime="onnxruntime 1.32.0",
    ),
    timings=OcrTimings(
        queue_wait_s=0.0034,
        queue_wait_is_lower_bound=False,
        inference_s=1.42,
        batches=5,
        pages=2,
        lines=2,
    ),
)


def request_example() -> dict[str, JsonValue]:
    """The keyword arguments of a small `ocr.documents`, as they stand in the message's JSON."""
    return _REQUEST.model_dump(mode="json", exclude_unset=True)


def result_example() -> dict[str, JsonValue]:
    """What `ocr.documents` returns for that request, as it stands in the stored JSON."""
    return _RESULT.model_dump(mode="json", exclude_unset=True)
