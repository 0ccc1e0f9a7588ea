"""What a bulk run leaves behind: `manifest.json`, written last, and the tally of which its totals are the sum.

A reader who follows the manifest sees every input row once, in order; without a manifest there is no result. It holds
the times and the lineage, which the parts do not, and the counts in which a drift between nights shows.
This module does not know where the documents are stored, nor how rows are counted.
"""

from typing import Annotated, Final, Self

from pydantic import AwareDatetime, BaseModel, Field, model_validator

from schemas.bulk import Sha256, Uri
from schemas.bulk_plan import InputFile
from schemas.errors import ErrorCode
from schemas.results import Count, ModelInfo, Score
from schemas.strict import STRICT, contradiction

MANIFEST_FILE: Final = "manifest.json"
SUCCESS_FILE: Final = "_SUCCESS"

SCORE_BINS: Final = 20
"""Equal bins of the score from 0 to 1: [0, 0.05), [0.05, 0.1) … [0.95, 1]."""


class Tally(BaseModel):
    """Counts over some rows; two tallies of different rows add up to the tally of both."""

    model_config = STRICT

    rows: Count = Field(default=0, description="All rows.")
    labelled: Count = Field(default=0, description="Rows that have a label.")
    unlabelled: Count = Field(
        default=0, description="Rows without one and without an error: no score of a multi-label model fits."
    )
    errors: dict[ErrorCode, Count] = Field(default_factory=dict, description="Rows that have an error, by its code.")
    labels: dict[str, Count] = Field(default_factory=dict, description="Labelled rows by their best label.")
    scores: list[Count] = Field(
        default_factory=lambda: [0] * SCORE_BINS,
        min_length=SCORE_BINS,
        max_length=SCORE_BINS,
        description=f"Labelled rows by their best score, in {SCORE_BINS} equal bins from 0 to 1.",
    )
    truncated: Count = Field(default=0, description="Rows of which the model saw only a part.")
    repeated: Count = Field(default=0, description="Rows that took the result of an equal text in the same shard.")
    tokens: Count = Field(default=0, description="Tokens of all rows as the model reads them, repeated ones included.")

    @property
    def inputs(self) -> int:
        """Rows of the inputs that the rows came of."""
        return self.rows

    @property
    def rejected(self) -> int:
        """Rows that have an error instead of a label."""
        return sum(self.errors.values())

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        if self.rows != self.labelled + self.unlabelled + self.rejected:
            raise contradiction("inconsistent_manifest", "every row is labelled, unlabelled or has an error")
        if not self.labelled == sum(self.labels.values()) == sum(self.scores):
            raise contradiction("inconsistent_manifest", "every labelled row has one label and one score")
        if max(self.truncated, self.repeated) > self.rows:
            raise contradiction("inconsistent_manifest", "no more rows are truncated or repeated than there are")
        return self


class PageTally(BaseModel):
    """The same of rows that are pages of documents, which `bulk.ocr` writes."""

    model_config = STRICT

    rows: Count = Field(default=0, description="All rows: the pages, and one for each document without any.")
    documents: Count = Field(default=0, description="The documents that the rows are of.")
    pages: Count = Field(default=0, description="Rows of pages that were read.")
    blank: Count = Field(default=0, description="Pages among these on which no line was found.")
    errors: dict[ErrorCode, Count] = Field(
        default_factory=dict, description="Rows that have an error, pages and documents, by its code."
    )
    confidences: list[Count] = Field(
        default_factory=lambda: [0] * SCORE_BINS,
        min_length=SCORE_BINS,
        max_length=SCORE_BINS,
        description=f"Pages with lines by their mean confidence, in {SCORE_BINS} equal bins from 0 to 1.",
    )
    lines: Count = Field(default=0, description="Lines of all pages.")

    @property
    def inputs(self) -> int:
        """Rows of the inputs that the rows came of."""
        return self.documents

    @property
    def rejected(self) -> int:
        """Rows that have an error instead of a text."""
        return sum(self.errors.values())

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        if self.rows != self.pages + self.rejected:
            raise contradiction("inconsistent_manifest", "every row is a page that was read or has an error")
        if self.pages != self.blank + sum(self.confidences):
            raise contradiction("inconsistent_manifest", "every page that was read is blank or has one confidence")
        if self.documents > self.rows:
            raise contradiction("inconsistent_manifest", "every document has a row")
        return self


class PartRecord(BaseModel):
    """What a part says about itself: all that the manifest needs of it beside its bytes."""

    model_config = STRICT

    schema_version: int = Field(default=1, ge=1, le=1, description="The version of this document's form.")
    plan_key: Sha256 = Field(description="The key of the plan by which it was made.")
    shard: int = Field(ge=0, description="The index of its shard in that plan.")
    model: ModelInfo = Field(description="What made it.")
    tally: Tally | PageTally = Field(description="The counts over its rows.")
    rejects_sha256: Sha256 | None = Field(
        default=None, description="The SHA-256 of the file that lists its rows with an error; null: it has none."
    )

    @model_validator(mode="after")
    def _lists_what_it_rejects(self) -> Self:
        if (self.rejects_sha256 is None) != (self.tally.rejected == 0):
            raise contradiction("inconsistent_manifest", "a part has rejects where rows have an error, and only there")
        return self


class Part(BaseModel):
    """One file of the result."""

    model_config = STRICT

    uri: Uri = Field(description="The part's address.")
    rows: Count = Field(description="Its rows.")
    size_bytes: Count = Field(description="Its size.")
    sha256: Sha256 = Field(description="The SHA-256 of its bytes, in hex.")


class BulkManifest(BaseModel):
    """The result of a run: the only list of its parts to trust."""

    model_config = STRICT

    schema_version: int = Field(default=1, ge=1, le=1, description="The version of this document's form.")
    job_id: str = Field(min_length=1, description="Names the run.")
    fingerprint: Sha256 = Field(description="The plan's fingerprint: of inputs, model and settings.")
    plan: Uri = Field(description="Where the plan is.")
    plan_key: Sha256 = Field(description="The plan's key: of the fingerprint, the batch limits and the cut.")
    started_at: AwareDatetime = Field(description="When the run was planned.")
    finished_at: AwareDatetime = Field(description="When its last part was there.")
    models: list[ModelInfo] = Field(
        description="What made the parts: one model, on each provider and runtime version that took part."
    )
    parts: list[Part] = Field(description="The parts in the order of the input's rows.")
    rejects: list[Part] = Field(
        default_factory=list, description="Copies of the rows that have an error, as files of their own."
    )
    totals: Tally | PageTally = Field(description="The counts over all rows.")
    label_shares: dict[str, Annotated[float, Field(ge=0, le=1)]] = Field(
        description="The share of each label among the labelled rows, most frequent first; none of pages."
    )
    rejection_rate: Score = Field(description="The share of rows that have an error.")
    differing_parts: Count = Field(
        default=0, description="Parts that were made twice with other bytes; the first one stands."
    )
    inputs: list[InputFile] = Field(description="The files whose rows the parts hold.")
    carried: list[InputFile] = Field(
        default_factory=list,
        description="Files that an earlier run covers; a run since this manifest skips them like `inputs`.",
    )

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        rows, inputs = sum(part.rows for part in self.parts), sum(file.rows for file in self.inputs)
        if rows != self.totals.rows or inputs != self.totals.inputs:
            raise contradiction("inconsistent_manifest", "parts, totals and inputs have the same number of rows")
        return self
