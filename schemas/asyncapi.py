"""The AsyncAPI 3 document: which message goes where, and where its result is found.

It refers to the JSON Schema files beside it. It describes the message as an application sees it; how
kombu wraps it in Redis is told in `docs/contract.md`.
"""

from typing import Final

from pydantic import JsonValue

from schemas.names import (
    ENQUEUED_AT_HEADER,
    PRIORITY_MAX,
    PRIORITY_MIN,
    QUEUE_BULK,
    QUEUE_BULK_OCR,
    QUEUE_CLASSIFY,
    QUEUE_OCR,
    TASK_BULK_CLASSIFY,
    TASK_BULK_OCR,
    TASK_CLASSIFY,
    TASK_OCR_DOCUMENTS,
)

REQUEST_FILE: Final = "classify-tickets.request.schema.json"
RESULT_FILE: Final = "classify-tickets.result.schema.json"
BULK_REQUEST_FILE: Final = "bulk-classify.request.schema.json"
BULK_RESULT_FILE: Final = "bulk-classify.result.schema.json"
BULK_OCR_REQUEST_FILE: Final = "bulk-ocr.request.schema.json"
OCR_REQUEST_FILE: Final = "ocr-documents.request.schema.json"
OCR_RESULT_FILE: Final = "ocr-documents.result.schema.json"

Document = dict[str, JsonValue]


def document() -> Document:
    """The AsyncAPI 3 document of the worker: it receives requests and replies through the result key."""
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "batchmill",
            "version": "1",
            "description": "Classifies tickets that are sent as Celery tasks over Redis or Valkey, or stand in files; "
            "reads the text of scans, images and PDFs.",
        },
        "defaultContentType": "application/json",
        "channels": {
            "classify": _request_channel(QUEUE_CLASSIFY, "request"),
            "ocr": _request_channel(QUEUE_OCR, "ocrRequest"),
            "bulk": _request_channel(QUEUE_BULK, "bulkRequest"),
            "bulkOcr": _request_channel(QUEUE_BULK_OCR, "bulkOcrRequest"),
            "result": _result_channel(),
        },
        "operations": {
            "classifyTickets": _operation("classify", "request", "success"),
            "ocrDocuments": _operation("ocr", "ocrRequest", "ocrSuccess"),
            "bulkClassify": _operation("bulk", "bulkRequest", "bulkSuccess"),
            "bulkOcr": _operation("bulkOcr", "bulkOcrRequest", "bulkSuccess"),
        },
        "components": {
            "messages": {
                "request": _request_message(TASK_CLASSIFY, REQUEST_FILE),
                "ocrRequest": _request_message(TASK_OCR_DOCUMENTS, OCR_REQUEST_FILE),
                "bulkRequest": _request_message(TASK_BULK_CLASSIFY, BULK_REQUEST_FILE),
                "bulkOcrRequest": _request_message(TASK_BULK_OCR, BULK_OCR_REQUEST_FILE),
                "success": _result_message("SUCCESS", {"$ref": f"./{RESULT_FILE}"}),
                "ocrSuccess": _result_message("SUCCESS", {"$ref": f"./{OCR_RESULT_FILE}"}),
                "bulkSuccess": _result_message("SUCCESS", {"$ref": f"./{BULK_RESULT_FILE}"}),
                "failure": _result_message("FAILURE", _EXCEPTION),
            }
        },
    }


def _request_channel(queue: str, message: str) -> Document:
    return {
        "address": queue,
        "description": "A Celery queue: Redis lists of this name, one for each priority step.",
        "messages": {message: {"$ref": f"#/components/messages/{message}"}},
    }


def _result_channel() -> Document:
    return {
        "address": "celery-task-meta-{task_id}",
        "description": "A Redis key that holds the result until it expires.",
        "parameters": {
            "task_id": {"description": "The id of the request.", "location": "$message.header#/id"},
        },
        "messages": {
            name: {"$ref": f"#/components/messages/{name}"}
            for name in ("success", "ocrSuccess", "bulkSuccess", "failure")
        },
    }


def _operation(channel: str, request: str, success: str) -> Document:
    return {
        "action": "receive",
        "channel": {"$ref": f"#/channels/{channel}"},
        "messages": [{"$ref": f"#/channels/{channel}/messages/{request}"}],
        "reply": {
            "channel": {"$ref": "#/channels/result"},
            "messages": [
                {"$ref": f"#/channels/result/messages/{success}"},
                {"$ref": "#/channels/result/messages/failure"},
            ],
        },
    }


def _request_message(task: str, request_file: str) -> Document:
    return {
        "name": task,
        "summary": "A Celery message of protocol 2: the request is the keyword arguments.",
        "contentType": "application/json",
        "headers": {
            "type": "object",
            "required": ["task", "id"],
            "properties": {
                "task": {"const": task},
                "id": {
                    "type": "string",
                    "description": "The task's id, and the message's idempotency key.",
                },
                ENQUEUED_AT_HEADER: {
                    "type": "number",
                    "description": "When the producer enqueued the message, in Unix seconds.",
                },
            },
        },
        "payload": {
            "type": "array",
            "description": "Positional arguments (none), keyword arguments, and what Celery embeds. "
            f"The message's property `priority` goes from {PRIORITY_MIN} (first) to {PRIORITY_MAX} (last).",
            "items": [{"type": "array", "maxItems": 0}, {"$ref": f"./{request_file}"}, {"type": "object"}],
            "minItems": 3,
            "maxItems": 3,
        },
    }


def _result_message(status: str, result: Document) -> Document:
    return {
        "name": status,
        "contentType": "application/json",
        "payload": {
            "type": "object",
            "required": ["status", "result", "task_id"],
            "properties": {
                "status": {"const": status},
                "result": result,
                "task_id": {"type": "string"},
                "date_done": {"type": "string", "format": "date-time"},
            },
        },
    }


_EXCEPTION: Final[Document] = {
    "type": "object",
    "required": ["exc_type", "exc_message"],
    "properties": {
        "exc_type": {
            "type": "string",
            "description": "`MessageError` for a message that is wrong as a whole.",
        },
        "exc_message": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Of a `MessageError` one text: `code: message`.",
        },
    },
}
