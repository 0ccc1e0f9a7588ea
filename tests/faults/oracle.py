"""Texts to send, and the labels that they should come back with: the model run alone, without queue and workers."""

from __future__ import annotations

from itertools import count as count_up
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from tasks.classify.model import Scored, TicketClassifier
from tests.tiny_models import WORDS
from worker.jobs import Cancellation
from worker.models.repository import load_dir
from worker.models.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Label(NamedTuple):
    """A label and its score."""

    label: str
    score: float


class Oracle:
    """The fault-free run: one text a call.

    Args:
        model: directory of the model.
    """

    def __init__(self, model: Path) -> None:
        model_dir = load_dir(model)
        self._model = TicketClassifier(model_dir, Session(model_dir.onnx_path, ("CPUExecutionProvider",), 1))
        self._known: dict[str, Label] = {}

    def __call__(self, text: str) -> Label:
        """Return what the model says of `text`."""
        if text not in self._known:
            (encoded,) = self._model.encoder.encode([text], "head_tail")
            assert encoded is not None
            (scored,) = self._model.run([encoded.ids], Cancellation())
            assert isinstance(scored, Scored)
            self._known[text] = Label(self._model.labels[scored.best], scored.score)
        return self._known[text]


def texts(count: int, *magic: str, seed: int = 0) -> list[str]:
    """Return distinct texts of 3 to 12 words, each with the magic words in front."""
    return list(islice(endless_texts(*magic, seed=seed), count))


def endless_texts(*magic: str, seed: int = 0) -> Iterator[str]:
    """Yield distinct texts of 3 to 12 words, each with the magic words in front."""
    random = Random(seed)  # noqa: S311 - texts are no secrets
    words = [word for word in WORDS if word not in {"nan", "endless"}]
    for number in count_up():
        yield " ".join([*magic, *random.choices(words, k=random.randint(3, 12)), str(number)])
