"""One request and its result: what the JSON Schemas, the docs and the tests show.

They are built by the models, so an example that breaks the contract cannot be imported.
"""

from typing import Final

from pydantic import JsonValue

from schemas.errors import ErrorCode, ItemError
from schemas.messages import ClassifyTickets, Ticket
from schemas.results import ClassifyResult, LabelScore, ModelInfo, TicketResult, Timings

_REQUEST: Final = ClassifyTickets(
    tickets=[
        Ticket(id="T-1001", text="I was charged twice for my May invoice, please refund one of them."),
        Ticket(id="T-1002", subject="Anmeldung", body="Seit heute früh komme ich nicht mehr ins Kundenkonto."),
        Ticket(id="T-1003", text="   "),
    ],
    top_k=2,
)

_RESULT: Final = ClassifyResult(
    schema_version=1,
    results=[
        TicketResult(
            id="T-1001",
            label="billing",
            score=0.9137,
            scores=[LabelScore(label="billing", score=0.9137), LabelScore(label="refund", score=0.0641)],
            truncated=False,
            tokens=16,
        ),
        TicketResult(
            id="T-1002",
            label="access",
            score=0.8802,
            scores=[LabelScore(label="access", score=0.8802), LabelScore(label="outage", score=0.0519)],
            truncated=False,
            tokens=24,
        ),
        TicketResult(
            id="T-1003",
            truncated=False,
            tokens=0,
            error=ItemError(code=ErrorCode.EMPTY_TEXT, message="the text has no visible character"),
        ),
    ],
    model=ModelInfo(
        name="tickets-en",
        version="1",
        sha256="9f2c" * 16,
        precision="int8-rowwise",
        provider="CPUExecutionProvider",
        runtime="onnxruntime 1.32.0",
    ),
    timings=Timings(
        queue_wait_s=0.0021,
        queue_wait_is_lower_bound=False,
        inference_s=0.0073,
        batches=1,
        batch_size_max=2,
        real_tokens=40,
        padded_tokens=48,
    ),
)


def request_example() -> dict[str, JsonValue]:
    """The keyword arguments of a small `classify.tickets`, as they stand in the message's JSON."""
    return _REQUEST.model_dump(mode="json", exclude_unset=True)


def result_example() -> dict[str, JsonValue]:
    """What `classify.tickets` returns for that request, as it stands in the stored JSON."""
    return _RESULT.model_dump(mode="json")
