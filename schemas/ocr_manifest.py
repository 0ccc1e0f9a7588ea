"""What an OCR model says about itself: `model.json` beside its three networks.

An OCR model is more than one file, so it has a manifest of its own; as with a classifier's, a file that was changed or
mixed up is refused by its hash. This module reads no files and does not know how a model is found or loaded.
"""

import hashlib
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from schemas.manifest import MANIFEST_FILE

__all__ = ["MANIFEST_FILE", "ModelFile", "OcrManifest"]

_NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"


class ModelFile(BaseModel):
    """One file of the model, in the same directory as the manifest."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    file: str = Field(pattern=r"^[^/\\]+$", description="Its name.")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="Its SHA-256, in hex.")


class OcrManifest(BaseModel):
    """An OCR model's identity, what it needs to be run right, and where it comes from."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    schema_version: int = Field(default=1, ge=1, le=1, description="The version of this manifest's form.")
    name: str = Field(pattern=_NAME, description="The model's name, as a message may ask for it.")
    version: str = Field(pattern=_NAME, description="Its version; a changed file needs a new one.")
    task: Literal["ocr"] = Field(default="ocr", description="What the model is for.")
    orientation: ModelFile = Field(description="The network that says which way up a page is.")
    detection: ModelFile = Field(description="The network that finds lines.")
    recognition: ModelFile = Field(description="The network that reads a line.")
    dictionary: ModelFile = Field(description="The characters by class, separated by line feeds.")
    least_side: int = Field(ge=32, description="Pixels to which a page's shorter side is enlarged for detection.")
    most_side: int = Field(ge=32, description="Pixels to which a page's longer side is shrunk for detection.")
    precision: str = Field(min_length=1, description="How the networks compute: `fp32`, `int8-static`.")
    licence: str | None = Field(default=None, description="The licence of the weights, as an SPDX id.")
    provenance: dict[str, JsonValue] = Field(
        default_factory=dict, description="Where it comes from: base weights, changes, measured parity."
    )
    created_by: str | None = Field(default=None, description="The program and version that wrote it.")

    @property
    def sha256(self) -> str:
        """One SHA-256 for the model, as results name it: over those of its files, in hex."""
        files = (self.orientation, self.detection, self.recognition, self.dictionary)
        return hashlib.sha256("".join(file.sha256 for file in files).encode()).hexdigest()
