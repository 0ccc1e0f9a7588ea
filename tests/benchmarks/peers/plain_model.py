"""What anyone would write around ONNX Runtime: tokenise, pad, run, softmax; one thread, spinning off.

The raw loop and every peer run exactly this, so that a difference between contestants is the queue's. It
runs in environments without this project's packages and imports none of them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import onnxruntime as ort
from tokenizers import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

DEFAULT_MAX_LENGTH = 512


class PlainModel:
    """One session over a model directory, safe to call from several threads."""

    def __init__(self, directory: Path) -> None:
        self.tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
        self.max_length = _max_length(directory, self.tokenizer)
        self.tokenizer.enable_truncation(self.max_length)
        self.tokenizer.no_padding()
        labels = json.loads((directory / "config.json").read_text())["id2label"]
        self.labels = [labels[str(index)] for index in range(len(labels))]
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.enable_mem_pattern = False
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        (model,) = directory.glob("*.onnx")
        self.session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        self.inputs = {entry.name for entry in self.session.get_inputs()}

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, truncated to `max_length`, not padded."""
        return [encoding.ids for encoding in self.tokenizer.encode_batch_fast(list(texts))]

    def run(self, rows: Sequence[Sequence[int]]) -> list[dict[str, object]]:
        """One padded batch: `{label, score}` for each row."""
        logits = self.session.run(None, self._feeds(rows))[0]
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        odds /= odds.sum(axis=1, keepdims=True)
        best = odds.argmax(axis=1)
        return [
            {"label": self.labels[index], "score": float(row[index])} for index, row in zip(best, odds, strict=True)
        ]

    def classify(self, texts: Sequence[str]) -> list[dict[str, object]]:
        """Tokenise and run the texts as one batch."""
        return self.run(self.encode(texts))

    def _feeds(self, rows: Sequence[Sequence[int]]) -> dict[str, NDArray[np.int64]]:
        ids = np.zeros((len(rows), max(map(len, rows))), np.int64)
        mask = np.zeros_like(ids)
        for index, row in enumerate(rows):
            ids[index, : len(row)] = row
            mask[index, : len(row)] = 1
        feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        return {name: feeds[name] for name in self.inputs}


def _max_length(directory: Path, tokenizer: Tokenizer) -> int:
    """As the worker reads it: from the manifest, else from the tokenizer's truncation."""
    manifest = directory / "model.json"
    stated = json.loads(manifest.read_text()).get("max_length") if manifest.exists() else None
    return int(stated or (tokenizer.truncation or {}).get("max_length", DEFAULT_MAX_LENGTH))
