"""What comes back from `classify.tickets`: one result per ticket, what made it, and what it took.

The worker builds the same shape from plain dicts, because a model instance per ticket would cost more
than the rest of its bookkeeping; these models define that shape, the tests hold the worker to it, and
a producer in Python may parse with them. They are strict on purpose.
This module does not know how a result is computed or stored.
"""

from itertools import pairwise
from typing import Annotated, Self

from pydantic import BaseModel, Field, model_validator

from schemas.errors import ItemError
from schemas.messages import ID_CHARACTERS_MAX, TICKETS_MAX
from schemas.strict import STRICT, contradiction

Score = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]


class LabelScore(BaseModel):
    """A label and how sure the model is of it."""

    model_config = STRICT

    label: str = Field(description="The label as the model names it.")
    score: Score = Field(
        description="Softmax over all labels (single-label) or this label's own sigmoid (multi-label)."
    )


class TicketResult(BaseModel):
    """The one outcome of one ticket: a label, or `error`.

    Without `error`, `label` is null only for a multi-label model of which no score reached the threshold.
    """

    model_config = STRICT

    id: str = Field(min_length=1, max_length=ID_CHARACTERS_MAX, description="The ticket's id.")
    label: str | None = Field(default=None, description="The best label; null with `error`, or if none fits.")
    score: Score | None = Field(default=None, description="The best label's score; null without a label.")
    scores: list[LabelScore] | None = Field(
        default=None,
        description="Best first: the `top_k` labels if more than one was asked for; of a multi-label model "
        "all that reached the threshold. Otherwise null.",
    )
    truncated: bool = Field(description="Whether the model saw only a part of the text.")
    tokens: Count = Field(description="How many tokens the model saw, after truncation; 0 if it saw none.")
    error: ItemError | None = Field(default=None, description="Why the ticket has no label; else null.")

    @model_validator(mode="after")
    def _is_one_outcome(self) -> Self:
        if (self.label is None) != (self.score is None):
            raise contradiction("inconsistent_result", "label and score come together")
        if self.error is not None and (self.label is not None or self.scores is not None):
            raise contradiction("inconsistent_result", "an error comes without a label and without scores")
        if self.error is None and self.label is None and self.scores != []:
            raise contradiction("inconsistent_result", "without an error there is a label, or an empty list of scores")
        return self

    @model_validator(mode="after")
    def _is_ranked(self) -> Self:
        scores = self.scores or []
        if any(worse.score > better.score for better, worse in pairwise(scores)):
            raise contradiction("inconsistent_result", "scores come best first")
        if scores and (self.label, self.score) != (scores[0].label, scores[0].score):
            raise contradiction("inconsistent_result", "label and score are the first of scores")
        return self


class ModelInfo(BaseModel):
    """What made the result: enough to find the very same model again."""

    model_config = STRICT

    name: str = Field(description="The model's name.")
    version: str = Field(description="The model's version.")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="The SHA-256 of the model's ONNX file, in hex.")
    precision: str = Field(description="How weights and products are computed, such as `fp32`.")
    provider: str = Field(description="ONNX Runtime's execution provider that ran it.")
    runtime: str = Field(description="The runtime and its version.")


class Timings(BaseModel):
    """What the message took: seconds are wall clock, counts are over the whole message."""

    model_config = STRICT

    queue_wait_s: Seconds = Field(
        description="From the header `enqueued_at`, or else from when a worker first saw the message, "
        "to when its first batch started."
    )
    queue_wait_is_lower_bound: bool = Field(
        description="True without the header `enqueued_at`: the message may have waited longer."
    )
    inference_s: Seconds = Field(description="Duration of the batches that the tickets were in, added up.")
    batches: Count = Field(description="How many batches the tickets were in.")
    batch_size_max: Count = Field(description="The rows of the largest of these batches, other messages' included.")
    real_tokens: Count = Field(description="Tokens of this message's rows; identical texts in a batch share one row.")
    padded_tokens: Count = Field(description="The same rows with their padding.")


class ClassifyResult(BaseModel):
    """The return value of the task `classify.tickets`."""

    model_config = STRICT

    schema_version: int = Field(default=1, ge=1, le=1, description="The version of this contract.")
    results: list[TicketResult] = Field(
        min_length=1,
        max_length=TICKETS_MAX,
        description="One result for each ticket, in the order of the request.",
    )
    model: ModelInfo = Field(description="What made the results.")
    timings: Timings = Field(description="What the message took.")
