"""What a model says about itself: `model.json` beside its ONNX file.

A directory as Hugging Face Optimum exports it needs no manifest; with one, every result names the
model's version, and a file that was changed or mixed up is refused by its hash.
This module reads no files and does not know how a model is found or loaded.
"""

from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

MANIFEST_FILE: Final = "model.json"

ProblemType = Literal["single_label_classification", "multi_label_classification"]

_NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"


class ModelManifest(BaseModel):
    """A model's identity, what it needs to be run right, and where it comes from."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    schema_version: int = Field(default=1, ge=1, le=1, description="The version of this manifest's form.")
    name: str = Field(pattern=_NAME, description="The model's name, as a message may ask for it.")
    version: str = Field(pattern=_NAME, description="Its version; a changed file needs a new one.")
    task: Literal["ticket-classification"] = Field(
        default="ticket-classification", description="What the model is for."
    )
    file: str = Field(pattern=r"^[^/\\]+\.onnx$", description="The ONNX file, in the same directory as the manifest.")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="The SHA-256 of that file, in hex.")
    precision: str = Field(min_length=1, description="How weights and products are computed: `fp32`, `int8-rowwise`, …")
    max_length: int | None = Field(
        default=None, ge=1, description="How many tokens the model reads; null: as its tokenizer says."
    )
    labels: list[str] | None = Field(
        default=None, min_length=1, description="The labels by index; null: as `id2label` in config.json."
    )
    problem_type: ProblemType | None = Field(
        default=None, description="One label or several per ticket; null: as config.json says."
    )
    licence: str | None = Field(default=None, description="The licence of the weights, as an SPDX id.")
    provenance: dict[str, JsonValue] = Field(
        default_factory=dict, description="Where it comes from: base weights, data, measured accuracy."
    )
    created_by: str | None = Field(default=None, description="The program and version that wrote it.")
