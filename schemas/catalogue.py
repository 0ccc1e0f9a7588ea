"""What each error code means and what a producer does about it: the source of the table in the docs.

Every code stands in exactly one of the three mappings, which a test holds.
This module does not know how or when an error arises.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from schemas.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class Explanation:
    """An error code in words: what happened, and what the producer does about it."""

    meaning: str
    remedy: str


ITEM_CODES: Final[Mapping[ErrorCode, Explanation]] = MappingProxyType(
    {
        ErrorCode.EMPTY_TEXT: Explanation(
            "The text is empty, white space, invisible, or nothing that the model's tokenizer knows.",
            "Leave such tickets out, or treat them as unlabelled.",
        ),
        ErrorCode.NULL_TEXT: Explanation(
            "The text is null.",
            "Send a string; leave out a `subject` or `body` that does not exist.",
        ),
        ErrorCode.NOT_TEXT: Explanation(
            "The text is a number, a boolean, a list or an object.",
            "Send a string. Nothing is converted silently.",
        ),
        ErrorCode.INVALID_UNICODE: Explanation(
            "The text holds a lone surrogate, which is no character.",
            "Decode the source with its right encoding, or replace what cannot be decoded.",
        ),
        ErrorCode.MISSING_TEXT: Explanation(
            "The ticket has none of `text`, `subject` and `body`.",
            "Give it a `text`, or a `subject`, a `body` or both.",
        ),
        ErrorCode.UNREADABLE_ROW: Explanation(
            "The line of a CSV or JSONL file is no record: too many or too few fields, or no JSON object.",
            "Correct the line that the rejects name, or how the file is written.",
        ),
        ErrorCode.MODEL_OUTPUT_NOT_FINITE: Explanation(
            "The model returned NaN or infinity for this item, so no label can be trusted.",
            "Report the ticket to whoever owns the model; sending it again gives the same.",
        ),
        ErrorCode.INFERENCE_FAILED: Explanation(
            "The model raised an error on this item, also when it ran alone.",
            "Report the ticket to whoever owns the model; the worker's log has the cause under the task id.",
        ),
        ErrorCode.INFERENCE_TIMEOUT: Explanation(
            "The item's batch did not end within the worker's time limit, also when it ran alone.",
            "Send it again once; if it stays, the limit is too short for this model or machine.",
        ),
        ErrorCode.OUT_OF_MEMORY: Explanation(
            "Memory ran out while this item was processed, also when it ran alone.",
            "Shorten the input, or give the worker more memory.",
        ),
        ErrorCode.MISSING_DOCUMENT: Explanation(
            "The document has neither a `uri` nor a `content` that is a string.",
            "Give it one of the two.",
        ),
        ErrorCode.FORBIDDEN_URI: Explanation(
            "The document's address is no plain `s3://BUCKET/KEY`, or outside of what the worker may read.",
            "Put the document under an allowed bucket and prefix, under a key without `%`, `..` or odd characters.",
        ),
        ErrorCode.INVALID_BASE64: Explanation(
            "The document's content is no base64 of the standard alphabet, with padding and without line breaks.",
            "Encode the file's bytes as RFC 4648, section 4, says.",
        ),
        ErrorCode.DOCUMENT_TOO_LARGE: Explanation(
            "The document has more bytes than the worker accepts.",
            "Send a smaller file, or split it; a document in a store may be larger than one inside a message.",
        ),
        ErrorCode.EMPTY_DOCUMENT: Explanation(
            "The document has no bytes or no pages.",
            "Check how the file was written.",
        ),
        ErrorCode.UNSUPPORTED_FORMAT: Explanation(
            "The bytes are no JPEG, PNG, TIFF, WebP, BMP, GIF or PDF, whatever the file's name says, or a rare kind.",
            "Convert the document into one of these formats.",
        ),
        ErrorCode.ENCRYPTED_DOCUMENT: Explanation(
            "The PDF opens only with a password, or with a key that the worker does not have.",
            "Remove the protection and send it again.",
        ),
        ErrorCode.DAMAGED_DOCUMENT: Explanation(
            "The document or the page is cut off, or its parts contradict each other; nothing is guessed.",
            "Send the intact file; the pages of the same document that have a result are good.",
        ),
        ErrorCode.TOO_MANY_PAGES: Explanation(
            "The document has more pages than the worker accepts.",
            "Split it.",
        ),
        ErrorCode.NO_SUCH_PAGE: Explanation(
            "The request names a page that the document does not have.",
            "Ask for pages that exist; the message says how many there are.",
        ),
        ErrorCode.IMAGE_TOO_LARGE: Explanation(
            "The image has more pixels, or takes more memory to decode, than the worker accepts.",
            "Send it at a lower resolution: 300 dpi are plenty to read from.",
        ),
        ErrorCode.DECODE_TIMEOUT: Explanation(
            "The document or the page took more time to decode than the worker allows.",
            "Print the document into a new PDF, or send its pages as images.",
        ),
    }
)

STORE_CODES: Final[Mapping[ErrorCode, Explanation]] = MappingProxyType(
    {
        ErrorCode.OBJECT_NOT_FOUND: Explanation(
            "An object does not exist: a document, or what a bulk run names, such as `since_manifest`.",
            "Correct its address, or upload it first.",
        ),
        ErrorCode.STORE_FORBIDDEN: Explanation(
            "The store refuses the worker's credentials, or there are none.",
            "Give the workers what boto3 reads, with rights to list, read and create; then send or resume again.",
        ),
        ErrorCode.STORE_UNAVAILABLE: Explanation(
            "The store gave no good answer over many tries.",
            "Send the document again, or resume the run, once the store is well: what is done is kept.",
        ),
    }
)

MESSAGE_CODES: Final[Mapping[ErrorCode, Explanation]] = MappingProxyType(
    {
        ErrorCode.INVALID_MESSAGE: Explanation(
            "A field is missing or has the wrong type or value, or arguments were given by position.",
            "Correct the field that the message names.",
        ),
        ErrorCode.UNKNOWN_FIELD: Explanation(
            "A field that the contract does not have.",
            "Correct its spelling or remove it; the message names it.",
        ),
        ErrorCode.DUPLICATE_ID: Explanation(
            "Two tickets or documents of one message have the same id.",
            "Make the ids unique within the message.",
        ),
        ErrorCode.NO_TICKETS: Explanation(
            "The list of tickets is empty.",
            "Send at least one ticket.",
        ),
        ErrorCode.TOO_MANY_TICKETS: Explanation(
            "More tickets than one message may hold.",
            "Spread them over several messages.",
        ),
        ErrorCode.NO_DOCUMENTS: Explanation(
            "The list of documents is empty.",
            "Send at least one document.",
        ),
        ErrorCode.TOO_MANY_DOCUMENTS: Explanation(
            "More documents than one message may hold.",
            "Spread them over several messages.",
        ),
        ErrorCode.MESSAGE_TOO_LARGE: Explanation(
            "The JSON body has more bytes than the worker accepts.",
            "Send fewer or shorter tickets in one message; put documents into a store and send their addresses.",
        ),
        ErrorCode.RESULT_TOO_LARGE: Explanation(
            "The result would have more bytes than the worker may store.",
            "Send fewer tickets or documents in one message, or ask for a smaller `top_k`.",
        ),
        ErrorCode.UNKNOWN_MODEL: Explanation(
            "No worker of this queue has the model that the message asks for.",
            "Ask for one of the models that the message lists, or leave `model` out.",
        ),
        ErrorCode.PRIORITY_OUT_OF_RANGE: Explanation(
            "The message's priority is not an integer between 0 and 9.",
            "Use 0 to 2 for interactive, 3 to 5 for normal, 6 to 9 for bulk work.",
        ),
        ErrorCode.NOT_JSON: Explanation(
            "The body is no valid JSON, or not the list `[args, kwargs, embed]`.",
            "Serialise the body as `docs/contract.md` shows.",
        ),
        ErrorCode.WRONG_CONTENT_TYPE: Explanation(
            "The content type is not `application/json`; pickle and YAML are never opened.",
            "Send with Celery's default serializer, json.",
        ),
        ErrorCode.UNKNOWN_TASK: Explanation(
            "The queue's workers have no task of this name.",
            "Correct the task's name, or the queue it is sent to.",
        ),
        ErrorCode.NO_INPUTS: Explanation(
            "A bulk run's list of inputs is empty, or no file matches it.",
            "Correct the path or glob that the message names, or check that the files have arrived.",
        ),
        ErrorCode.UNREADABLE_INPUT: Explanation(
            "An input file is damaged, of another format than its name says, or over the worker's limits.",
            "Replace the file that the message names, or narrow `inputs` so that it is left out.",
        ),
        ErrorCode.INPUT_CHANGED: Explanation(
            "An input file was replaced or removed after the run was planned; of `bulk.ocr` over documents it was one "
            "document, and only its row has the error.",
            "Start a new run into another output; write inputs once, under new names.",
        ),
        ErrorCode.UNKNOWN_COLUMN: Explanation(
            "An input file lacks a column that the request names.",
            "Correct the column's name; the text has the file and the columns that it has.",
        ),
        ErrorCode.COLUMN_EXISTS: Explanation(
            "A result column has the name of an input column.",
            "Set `column_prefix`, so that both are kept.",
        ),
        ErrorCode.SCHEMA_MISMATCH: Explanation(
            "A column has types in different input files that no common type holds.",
            "Rewrite the file that the message names, or run the two kinds of files apart.",
        ),
        ErrorCode.OUT_OF_SPACE: Explanation(
            "The worker's disk, the output's disk or its quota is full.",
            "Make room, or ask for smaller shards (`shard_rows`); then resume the run.",
        ),
        ErrorCode.UNSUPPORTED_STORE: Explanation(
            "The output's store overwrites where it must refuse, so two workers could mix their parts.",
            "Use a store that honours `If-None-Match: *`.",
        ),
        ErrorCode.OUTPUT_IN_USE: Explanation(
            "The output holds a run of other inputs, another model or other settings.",
            "Choose an output of its own for each run, such as one folder a night.",
        ),
        ErrorCode.PLAN_MISSING: Explanation(
            "A shard's plan is gone, or is not the one that the shard was cut by.",
            "Send the run's request again: it plans anew.",
        ),
        ErrorCode.PART_DIFFERS: Explanation(
            "With `strict`, a part was made twice and the two differ.",
            "Run on one CPU type with pinned versions, or without `strict`: the first part is a right one.",
        ),
        ErrorCode.TOO_MANY_REJECTED: Explanation(
            "More rows than `max_rejection_rate` allows have an error instead of a label or a text.",
            "Look at the rejects; correct the column or the data, or raise the ceiling.",
        ),
        ErrorCode.INTERNAL: Explanation(
            "The worker failed in a way that is its own fault.",
            "Report it with the task id; sending the message again is safe.",
        ),
    }
)
