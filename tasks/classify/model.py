"""A ticket classifier: rows of token ids in, a score for each label out.

It stands between the engine, which knows only rows, and the session, which knows only tensors: pads a batch,
feeds the inputs that the graph wants, and turns logits into scores. It knows nothing of messages, tickets or
batching policy.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from schemas.errors import ErrorCode
from tasks.classify.tokens import TicketEncoder
from worker.errors import ItemFailed, ModelError
from worker.jobs import Cancellation
from worker.models.repository import ModelDir
from worker.models.session import Session

_INPUTS: Final = frozenset({"input_ids", "attention_mask", "token_type_ids"})
_TOLERANCE: Final = 1e-3

# Run once at load, to see what kind of numbers the graph returns.
_PROBES: Final = (
    "I was charged twice for my last invoice, please refund one of the payments.",
    "Hallo, ich kann mich seit heute morgen nicht mehr anmelden.",
    "My parcel has not arrived yet. Where is it?",
    "Great service, thank you!",
)
_PROBE_TOKENS: Final = 16  # whether the graph takes `max_length` of them is for the warm-up to find out


class Scored(NamedTuple):
    """What the model thinks of one row: the best label's index, its score, and float32[labels] within 0 and 1."""

    best: int
    score: float
    scores: NDArray[np.float32]


class TicketClassifier:
    """One loaded model; a lane of the engine. Thread-safe.

    Whether the graph ends in logits or in probabilities is seen once, on sample texts: rows within 0 and 1
    that sum to 1 are probabilities. For a multi-label model, whose rows have no such sum, an output named
    `logits` is taken at its word, and any other is probabilities if all of it lies within 0 and 1.

    Args:
        model_dir: what the directory says.
        session: its graph, loaded.

    Attributes:
        name: the lane's name.
        info: what `schemas.results.ModelInfo` describes.
        max_length: most tokens of a row.
        labels: by class index.
        multi_label: several labels per ticket, each with its own score.
        encoder: makes the rows that `run` takes.

    Raises:
        ModelError: graph, labels and tokenizer do not fit together.
    """

    def __init__(self, model_dir: ModelDir, session: Session) -> None:
        self.name = model_dir.name
        self.max_length = model_dir.max_length
        self.labels = model_dir.id2label
        self.multi_label = model_dir.problem_type == "multi_label_classification"
        self.encoder = TicketEncoder(model_dir.tokenizer_path, model_dir.max_length)
        self.info: Mapping[str, str] = {
            "name": model_dir.name,
            "version": model_dir.version,
            "sha256": model_dir.sha256,
            "precision": model_dir.precision,
            "provider": session.provider,
            "runtime": session.runtime,
        }
        _check_inputs(model_dir, session)
        self._session = session
        self._pad_token_id = model_dir.pad_token_id
        probes = _probes(self.encoder, model_dir)
        self._sample_ids = max(probes, key=len)
        self._to_scores = self._choose_normalisation(self._probe(probes, model_dir))

    def run(self, features: Sequence[object], cancellation: Cancellation) -> Sequence[object]:
        """Score one batch. Blocks, nearly all of it without the GIL.

        Args:
            features: int64[tokens] for each row.
            cancellation: ends the run early.

        Returns:
            For each row its `Scored`, or `ItemFailed` where the model returned NaN or infinity.

        Raises:
            ItemFailed: the whole batch failed or was cancelled.
            MemoryError: it needed more memory than there is.
        """
        raw = self._raw(cast("Sequence[NDArray[np.int64]]", features), cancellation)
        with np.errstate(all="ignore"):  # what is not finite becomes an error below, what underflows is 0
            scores = self._to_scores(raw)
        # For the whole batch at once: a numpy call a ticket would let go of the interpreter for each.
        outputs: list[object] = list(map(Scored, scores.argmax(axis=1).tolist(), scores.max(axis=1).tolist(), scores))
        for row in np.flatnonzero(np.logical_not(np.isfinite(raw).all(axis=1))):
            outputs[row] = _not_finite()
        return outputs

    def sample(self, batch_size: int, length: int) -> list[object]:
        """Return rows for warm-up: `batch_size` of exactly `length` tokens of plain text."""
        return [np.resize(self._sample_ids, length)] * batch_size

    def _raw(self, rows: Sequence[NDArray[np.int64]], cancellation: Cancellation) -> NDArray[np.float32]:
        """Return the graph's float32[rows, labels]."""
        tensors = pad(rows, self._pad_token_id)
        feeds = {name: tensors[name].astype(spec.dtype, copy=False) for name, spec in self._session.inputs.items()}
        return self._session.run(feeds, cancellation)

    def _probe(self, rows: Sequence[NDArray[np.int64]], model_dir: ModelDir) -> NDArray[np.float32]:
        try:
            raw = self._raw(rows, Cancellation())
        except (ItemFailed, MemoryError) as error:
            fault = error.__cause__ or error
            text = f"{model_dir.onnx_path} fails on plain text: {fault}; export the model again"
            raise ModelError(text) from error
        if raw.shape != (len(rows), len(self.labels)):
            text = (
                f"{model_dir.onnx_path} returns {self._session.output_name} of shape {raw.shape} for "
                f"{len(rows)} texts, but id2label names {len(self.labels)} labels: export with the task "
                "text-classification, or take the config.json of this very model"
            )
            raise ModelError(text)
        return raw

    def _choose_normalisation(self, raw: NDArray[np.float32]) -> "Normalisation":
        in_range = bool(np.all((raw >= -_TOLERANCE) & (raw <= 1 + _TOLERANCE)))
        if self.multi_label:
            return clipped if in_range and self._session.output_name != "logits" else sigmoid
        sums_to_one = bool(np.all(np.abs(raw.sum(axis=1) - 1) <= _TOLERANCE))
        return clipped if in_range and sums_to_one else softmax


Normalisation = Callable[[NDArray[np.float32]], NDArray[np.float32]]
"""From float32[rows, labels] of the graph to scores of the same shape; each row by itself."""


def softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Turn logits into probabilities that sum to 1 in each row."""
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return cast("NDArray[np.float32]", powers / powers.sum(axis=1, keepdims=True))


def sigmoid(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Turn each logit into a probability of its own."""
    return cast("NDArray[np.float32]", 1 / (1 + np.exp(-logits)))


def clipped(probabilities: NDArray[np.float32]) -> NDArray[np.float32]:
    """Take what the graph returns as it is, but for a rounding error beyond 0 and 1."""
    return np.clip(probabilities, 0, 1)


def pad(rows: Sequence[NDArray[np.int64]], pad_token_id: int) -> dict[str, NDArray[np.int64]]:
    """Make one batch of rows of different lengths, each padded on the right to the longest.

    Returns:
        `input_ids`, `attention_mask` and `token_type_ids`, each int64[rows, longest].
    """
    lengths = np.array([len(row) for row in rows])
    real = np.arange(lengths.max()) < lengths[:, None]
    input_ids = np.full(real.shape, pad_token_id, np.int64)
    input_ids[real] = np.concatenate(rows)
    return {
        "input_ids": input_ids,
        "attention_mask": real.astype(np.int64),
        "token_type_ids": np.zeros_like(input_ids),
    }


def _probes(encoder: TicketEncoder, model_dir: ModelDir) -> list[NDArray[np.int64]]:
    probes = [encoded.ids[:_PROBE_TOKENS] for encoded in encoder.encode(_PROBES, "head_tail") if encoded]
    if not probes:
        text = f"{model_dir.tokenizer_path} knows no word of plain English or German: export the tokenizer again"
        raise ModelError(text)
    return probes


def _check_inputs(model_dir: ModelDir, session: Session) -> None:
    """Refuse a graph that wants what a text does not have, or a fixed shape."""
    foreign = sorted(set(session.input_names) - _INPUTS)
    if foreign or "input_ids" not in session.input_names:
        text = (
            f"{model_dir.onnx_path} takes {', '.join(session.input_names)}, but a text gives input_ids, "
            "attention_mask and token_type_ids: export with the task text-classification"
        )
        raise ModelError(text)
    fixed = [name for name, spec in session.inputs.items() if any(isinstance(size, int) for size in spec.shape)]
    if fixed:
        text = (
            f"{model_dir.onnx_path} has a fixed shape for {', '.join(fixed)}: export with dynamic axes "
            "(the default of optimum-cli), because batches differ in rows and length"
        )
        raise ModelError(text)


def _not_finite() -> ItemFailed:
    return ItemFailed(ErrorCode.MODEL_OUTPUT_NOT_FINITE, "the model returned NaN or infinity for this ticket")
