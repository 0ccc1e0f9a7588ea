"""What a `classify.tickets` message means to the engine: its items, their tokens, and its result.

A ticket that cannot be read is that ticket's error; its neighbours never notice. The result is built of plain
dicts in the shape of `schemas.results`, because this is the hot path. It knows neither Celery nor batching,
and where it speaks of a ticket it never quotes its text.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from schemas.chain import tickets_of
from schemas.errors import ErrorCode, ItemError, MessageError
from schemas.messages import ClassifyTickets, Ticket, Truncation, parse_classify
from tasks.classify.model import Scored, TicketClassifier
from worker.errors import ItemFailed
from worker.jobs import Item, Job
from worker.metrics import NO_LABEL, OK, TOKENS

THRESHOLD_DEFAULT: Final = 0.5

# Subject and body become one text as in a mail; to nearly every tokenizer an empty line is a mere space.
_SUBJECT_END: Final = "\n\n"

_SCORE_DIGITS: Final = 6

# A letter or digit that shows; four letters of Unicode are blank.
_VISIBLE_LETTER: Final = re.compile(r"[^\W_\u115f\u1160\u3164\uffa0]")
_INVISIBLE: Final = frozenset({"Cc", "Cf", "Zl", "Zp", "Zs"})
_BLANK: Final = frozenset("\u115f\u1160\u2800\u3164\uffa0")


class ClassifyPipeline:
    """Implements `worker.jobs.Pipeline` for ticket classification. Thread-safe.

    Args:
        models: the lanes by name.
        default: the one that runs a message which names none.
    """

    reads = TOKENS

    def __init__(self, models: Mapping[str, TicketClassifier], default: str) -> None:
        self._models = models
        self._default = default

    def open(self, job: Job, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        """Validate the message; set `job.request` and `job.items`.

        Raises:
            MessageError: it is wrong as a whole, or asks for what the model cannot do.
        """
        errors: Mapping[str, ItemError] = {}
        if args:
            kwargs, errors = tickets_of(args, kwargs)
        request = parse_classify((), kwargs)
        lane = self._default if request.model is None else request.model
        if lane not in self._models:
            known = ", ".join(sorted(self._models))
            text = f"model: this worker has {known}; name one of them or leave model out"
            raise MessageError(ErrorCode.UNKNOWN_MODEL, text)
        check_options(request, self._models[lane])
        job.request = request
        job.items = [Item(job, index, ticket, lane) for index, ticket in enumerate(request.tickets)]
        for item, ticket in zip(job.items, request.tickets, strict=True) if errors else ():
            if (error := errors.get(ticket.id)) is not None:
                item.outcome = ItemFailed(error.code, error.message)

    def prepare(self, items: Sequence[Item]) -> None:
        """Tokenise items of any jobs, in one call for each model and way of truncation.

        Blocks about 30 µs for a short ticket, mostly without the GIL.
        """
        groups: dict[tuple[str, Truncation], tuple[list[Item], list[str]]] = defaultdict(lambda: ([], []))
        for item in items:
            if item.outcome is not None:
                continue  # a document that could not be read
            text = text_of(cast("Ticket", item.source))
            if isinstance(text, ItemFailed):
                item.outcome = text
            else:
                group, texts = groups[item.lane, cast("ClassifyTickets", item.job.request).truncation]
                group.append(item)
                texts.append(text)
        for (lane, truncation), (group, texts) in groups.items():
            self.encode(lane, group, texts, truncation)

    def encode(self, lane: str, items: Sequence[Item], texts: Sequence[str], truncation: Truncation) -> None:
        """Set what the lane's model reads of each text, or the item's outcome where its tokenizer knows nothing."""
        for item, encoded in zip(items, self._models[lane].encoder.encode(texts, truncation), strict=True):
            if encoded is None:
                text = "the text holds nothing that the model's tokenizer knows"
                item.outcome = ItemFailed(ErrorCode.EMPTY_TEXT, text)
            else:
                item.features = encoded.ids
                item.length = len(encoded.ids)
                item.key = encoded.ids.tobytes()
                item.truncated = encoded.truncated

    def spawn(self, item: Item) -> Sequence[Item]:  # noqa: ARG002 - a ticket is one item
        """Return nothing: a label gives rise to no other work."""
        return ()

    def complete(self, job: Job) -> dict[str, object]:
        """Return what `schemas.results.ClassifyResult` describes; keys that would be null are left out."""
        request = cast("ClassifyTickets", job.request)
        model = self._models[job.items[0].lane]
        results: list[dict[str, object]] = []
        outcomes, labels = [], []
        for item, ticket in zip(job.items, request.tickets, strict=True):
            outcome = item.outcome
            if isinstance(outcome, ItemFailed):
                labelled: dict[str, object] = {"label": None, "score": None, "error": outcome.as_dict()}
                outcomes.append(outcome.code.value)
            else:
                labelled = labels_of(model, cast("Scored", outcome), request, _SCORE_DIGITS)
                outcomes.append(OK)
                labels.append(cast("str | None", labelled["label"]) or NO_LABEL)
            results.append({"id": ticket.id, **labelled, "truncated": item.truncated, "tokens": item.length})
        job.outcomes, job.labels, job.tokens = outcomes, labels, job.real_tokens
        return {"schema_version": 1, "results": results, "model": dict(model.info), "timings": job.timings()}


def text_of(ticket: Ticket) -> str | ItemFailed:
    """Return the text that the model reads of a ticket, or why there is none.

    `text` as it is, or `subject`, an empty line and `body`; where only one of the two is there or not blank,
    that one.
    """
    given = ticket.model_fields_set
    if "text" in given:
        return checked(ticket.text, "text")
    parts = [checked(getattr(ticket, name), name) for name in ("subject", "body") if name in given]
    if not parts:
        return ItemFailed(ErrorCode.MISSING_TEXT, "the ticket has none of text, subject and body; give it one")
    return joined(parts)


def joined(parts: Sequence[str | ItemFailed]) -> str | ItemFailed:
    """Join subject and body; a blank one is no loss beside the other, any other error is the ticket's."""
    texts = [part for part in parts if isinstance(part, str)]
    errors = [part for part in parts if isinstance(part, ItemFailed)]
    fatal = [error for error in errors if error.code is not ErrorCode.EMPTY_TEXT or not texts]
    return fatal[0] if fatal else _SUBJECT_END.join(texts)


def checked(value: object, name: str) -> str | ItemFailed:
    """Return a text of a ticket if the model can read it, else why not; never quotes it."""
    if value is None:
        return ItemFailed(ErrorCode.NULL_TEXT, f"{name} is null; send a string or leave the ticket out")
    if not isinstance(value, str):
        return ItemFailed(
            ErrorCode.NOT_TEXT, f"{name} is no string but {_JSON_NAMES.get(type(value), 'something else')}"
        )
    if not value.isascii() and not _is_unicode(value):
        return ItemFailed(ErrorCode.INVALID_UNICODE, f"{name} holds a lone surrogate; decode the source correctly")
    if _is_blank(value):
        return ItemFailed(ErrorCode.EMPTY_TEXT, f"{name} is empty or holds nothing visible")
    return value


_JSON_NAMES: Final = {
    int: "a number",
    float: "a number",
    bool: "a boolean",
    list: "a list",
    dict: "an object",
}


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_blank(text: str) -> bool:
    """Say whether nothing in it shows: white space, control and zero-width characters, blank letters."""
    if _VISIBLE_LETTER.search(text):
        return False
    return all(unicodedata.category(character) in _INVISIBLE for character in set(text) - _BLANK)


class Options(Protocol):
    """What a message of any kind may ask of a model's scores."""

    @property
    def top_k(self) -> int: ...  # noqa: D102 - `schemas.messages` describes them

    @property
    def threshold(self) -> float | None: ...  # noqa: D102


def check_options(request: Options, model: TicketClassifier) -> None:
    """Refuse an option that would silently do nothing.

    Raises:
        MessageError: the model gives another kind of labels.
    """
    if model.multi_label and request.top_k != 1:
        text = f"top_k: model {model.name} gives every label over the threshold; leave top_k out"
        raise MessageError(ErrorCode.INVALID_MESSAGE, text)
    if not model.multi_label and request.threshold is not None:
        text = f"threshold: model {model.name} gives one label per ticket; leave threshold out"
        raise MessageError(ErrorCode.INVALID_MESSAGE, text)


def labels_of(model: TicketClassifier, scored: Scored, request: Options, digits: int) -> dict[str, object]:
    """Return what a result says of one row: `label`, `score`, and `scores` where there may be several.

    Args:
        model: that scored it.
        scored: its scores.
        request: what was asked.
        digits: to which scores are rounded.
    """
    scores = scored.scores
    if model.multi_label:
        threshold = THRESHOLD_DEFAULT if request.threshold is None else request.threshold
        order = np.argsort(-scores, kind="stable")
        ranked = _ranked(model.labels, scores, order[scores[order] >= threshold], digits)
        best = ranked[0] if ranked else {"label": None, "score": None}
        return {**best, "scores": ranked}
    if request.top_k == 1:
        return {"label": model.labels[scored.best], "score": round(scored.score, digits)}
    ranked = _ranked(model.labels, scores, np.argsort(-scores, kind="stable")[: request.top_k], digits)
    return {**ranked[0], "scores": ranked}


def _ranked(
    labels: Sequence[str], scores: NDArray[np.float32], order: NDArray[np.intp], digits: int
) -> list[dict[str, object]]:
    return [{"label": labels[index], "score": round(float(scores[index]), digits)} for index in order.tolist()]
