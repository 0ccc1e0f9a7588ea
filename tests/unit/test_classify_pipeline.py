import json
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import ErrorCode, MessageError
from schemas.messages import Ticket
from schemas.results import ClassifyResult
from tasks.classify.model import TicketClassifier
from tasks.classify.pipeline import ClassifyPipeline, text_of
from tests.tiny_models import LABELS, write_tiny_model
from worker.errors import ItemFailed
from worker.jobs import Cancellation, Job
from worker.models.repository import load_dir
from worker.models.session import Session


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, TicketClassifier]:
    root = tmp_path_factory.mktemp("models")
    write_tiny_model(root / "single", nan_word="nan", max_length=32)
    write_tiny_model(root / "multi", problem_type="multi_label_classification")
    found = [load_dir(root / name) for name in ("single", "multi")]
    return {
        model.name: TicketClassifier(model, Session(model.onnx_path, ["CPUExecutionProvider"], threads=1))
        for model in found
    }


@pytest.fixture(scope="module")
def pipeline(models: Mapping[str, TicketClassifier]) -> ClassifyPipeline:
    return ClassifyPipeline(models, default="single")


def opened(pipeline: ClassifyPipeline, **kwargs: object) -> Job:
    job = Job("job", pipeline, 0.0)
    pipeline.open(job, (), kwargs)
    return job


def classify(pipeline: ClassifyPipeline, models: Mapping[str, TicketClassifier], **kwargs: object) -> ClassifyResult:
    """Take a message through the pipeline and its model, and its result through JSON and the contract."""
    job = opened(pipeline, **kwargs)
    pipeline.prepare(job.items)
    for item in job.items:
        if item.outcome is None:
            (item.outcome,) = models[item.lane].run([item.features], Cancellation())
    return ClassifyResult.model_validate_json(json.dumps(pipeline.complete(job), allow_nan=False))


def tickets(*texts: object) -> list[dict[str, object]]:
    return [{"id": f"t{index}", "text": text} for index, text in enumerate(texts)]


def test_a_ticket_gets_a_label_and_a_score(pipeline: ClassifyPipeline, models: Mapping[str, TicketClassifier]) -> None:
    result = classify(pipeline, models, tickets=tickets("my parcel is late", "refund"))

    assert [ticket.id for ticket in result.results] == ["t0", "t1"]
    assert all(ticket.label in LABELS and ticket.scores is None for ticket in result.results)
    assert [ticket.tokens for ticket in result.results] == [6, 3]
    assert result.model.name == "single"


def test_top_k_gives_the_best_labels_in_order(
    pipeline: ClassifyPipeline, models: Mapping[str, TicketClassifier]
) -> None:
    (three,) = classify(pipeline, models, tickets=tickets("refund"), top_k=3).results
    (all_,) = classify(pipeline, models, tickets=tickets("refund"), top_k=100).results

    assert three.scores is not None
    assert len(three.scores) == 3
    assert all_.scores is not None
    assert sorted(entry.label for entry in all_.scores) == sorted(LABELS)
    assert sum(entry.score for entry in all_.scores) == pytest.approx(1, abs=1e-5)


def test_a_score_has_six_digits(pipeline: ClassifyPipeline, models: Mapping[str, TicketClassifier]) -> None:
    (ticket,) = classify(pipeline, models, tickets=tickets("refund")).results

    assert ticket.score is not None
    assert ticket.score == round(ticket.score, 6)


@pytest.mark.parametrize("threshold", [None, 0.0, 0.9, 1.0])
def test_multi_label_gives_every_label_that_reaches_the_threshold(
    pipeline: ClassifyPipeline, models: Mapping[str, TicketClassifier], threshold: float | None
) -> None:
    everything = classify(pipeline, models, tickets=tickets("my card"), model="multi", threshold=0.0).results[0]
    (ticket,) = classify(pipeline, models, tickets=tickets("my card"), model="multi", threshold=threshold).results
    least = 0.5 if threshold is None else threshold

    assert ticket.scores is not None
    assert everything.scores is not None
    assert ticket.scores == [entry for entry in everything.scores if entry.score >= least]
    assert ticket.label == (ticket.scores[0].label if ticket.scores else None)


def test_a_long_ticket_says_that_it_was_cut(pipeline: ClassifyPipeline, models: Mapping[str, TicketClassifier]) -> None:
    text = "please " + "my order is late " * 50 + "refund"
    job = opened(pipeline, tickets=tickets(text), truncation="head")
    pipeline.prepare(job.items)
    both_ends = opened(pipeline, tickets=tickets(text))
    pipeline.prepare(both_ends.items)

    (ticket,) = classify(pipeline, models, tickets=tickets(text)).results

    assert (ticket.truncated, ticket.tokens) == (True, 32)
    assert job.items[0].key != both_ends.items[0].key


def test_identical_texts_share_a_key_and_others_do_not(pipeline: ClassifyPipeline) -> None:
    items = opened(pipeline, tickets=tickets("Refund!", "refund !", "late")).items
    pipeline.prepare(items)

    assert items[0].key == items[1].key != items[2].key
    assert all(item.length == len(item.features) for item in items)  # type: ignore[arg-type]


BAD_TEXTS = [
    pytest.param({"text": None}, ErrorCode.NULL_TEXT, id="null"),
    pytest.param({"text": 5}, ErrorCode.NOT_TEXT, id="integer"),
    pytest.param({"text": 5.5}, ErrorCode.NOT_TEXT, id="float"),
    pytest.param({"text": True}, ErrorCode.NOT_TEXT, id="boolean"),
    pytest.param({"text": ["refund"]}, ErrorCode.NOT_TEXT, id="list"),
    pytest.param({"text": {"a": "refund"}}, ErrorCode.NOT_TEXT, id="object"),
    pytest.param({"text": b"refund"}, ErrorCode.NOT_TEXT, id="bytes"),
    pytest.param({"text": ""}, ErrorCode.EMPTY_TEXT, id="empty"),
    pytest.param({"text": " \t\r\n\u3000"}, ErrorCode.EMPTY_TEXT, id="white space"),
    pytest.param({"text": "\u200b\u200d\ufeff\u2060"}, ErrorCode.EMPTY_TEXT, id="zero width"),
    pytest.param({"text": "\u3164\u2800"}, ErrorCode.EMPTY_TEXT, id="blank letters"),
    pytest.param({"text": "\x00\x00"}, ErrorCode.EMPTY_TEXT, id="NULs"),
    pytest.param({"text": "[PAD] [SEP]"}, ErrorCode.EMPTY_TEXT, id="special tokens only"),
    pytest.param({"text": "🙂🙂"}, ErrorCode.EMPTY_TEXT, id="nothing that the tokenizer knows"),
    pytest.param({"text": "refund \ud83d"}, ErrorCode.INVALID_UNICODE, id="lone surrogate"),
    pytest.param({}, ErrorCode.MISSING_TEXT, id="no text at all"),
    pytest.param({"subject": None, "body": "refund"}, ErrorCode.NULL_TEXT, id="null subject"),
    pytest.param({"subject": "refund", "body": 5}, ErrorCode.NOT_TEXT, id="body a number"),
    pytest.param({"subject": "", "body": " "}, ErrorCode.EMPTY_TEXT, id="both blank"),
    pytest.param({"subject": "\udc00", "body": "refund"}, ErrorCode.INVALID_UNICODE, id="surrogate in subject"),
    pytest.param({"text": "my nan"}, ErrorCode.MODEL_OUTPUT_NOT_FINITE, id="NaN from the model"),
]


@pytest.mark.parametrize(("fields", "code"), BAD_TEXTS)
def test_a_bad_ticket_is_its_own_error_and_its_neighbours_are_untouched(
    pipeline: ClassifyPipeline, models: Mapping[str, TicketClassifier], fields: dict[str, object], code: ErrorCode
) -> None:
    good = {"id": "good", "text": "my parcel is late"}
    (expected,) = classify(pipeline, models, tickets=[good]).results

    first, bad, last = classify(
        pipeline, models, tickets=[good, {"id": "bad", **fields}, good | {"id": "last"}]
    ).results

    assert bad.error is not None
    assert (bad.id, bad.error.code) == ("bad", code)
    assert first == expected
    assert last == expected.model_copy(update={"id": "last"})


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("refund 🙂", id="emoji"),
        pytest.param("re\x00fund", id="NUL inside"),
        pytest.param("refund " * 150_000, id="1 MB single line"),
        pytest.param("x" * 1_000_000 + " refund", id="1 MB without a space"),
        pytest.param(" ".join("x" * 10_000), id="10,000 tokens"),
        pytest.param("rückerstattung für ß", id="umlauts"),
        pytest.param("!!! 5 €", id="hardly any letters"),
    ],
)
def test_an_odd_text_gets_a_label(
    pipeline: ClassifyPipeline, models: Mapping[str, TicketClassifier], text: str
) -> None:
    (ticket,) = classify(pipeline, models, tickets=tickets(text)).results

    assert ticket.label in LABELS
    assert ticket.tokens <= 32


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({"text": " my text\n"}, " my text\n", id="text as it is"),
        pytest.param({"subject": "Late", "body": "My parcel."}, "Late\n\nMy parcel.", id="subject and body"),
        pytest.param({"subject": "Late"}, "Late", id="subject alone"),
        pytest.param({"body": "My parcel."}, "My parcel.", id="body alone"),
        pytest.param({"subject": " ", "body": "My parcel."}, "My parcel.", id="blank subject"),
        pytest.param({"subject": "Late", "body": ""}, "Late", id="blank body"),
    ],
)
def test_what_the_model_reads_of_a_ticket(fields: dict[str, object], expected: str) -> None:
    assert text_of(Ticket.model_validate({"id": "a", **fields})) == expected


def test_no_error_quotes_the_ticket(pipeline: ClassifyPipeline) -> None:
    canary = "canary-9f3a"
    items = opened(pipeline, tickets=tickets([canary], {"a": canary}, f"{canary} \udfff")).items
    pipeline.prepare(items)

    assert all(isinstance(item.outcome, ItemFailed) for item in items)
    assert canary not in "".join(str(item.outcome) for item in items)


@pytest.mark.parametrize(
    ("kwargs", "code", "text"),
    [
        pytest.param({"model": "nope"}, ErrorCode.UNKNOWN_MODEL, "multi, single", id="unknown model"),
        pytest.param({"threshold": 0.5}, ErrorCode.INVALID_MESSAGE, "threshold: model single", id="threshold"),
        pytest.param({"model": "multi", "top_k": 2}, ErrorCode.INVALID_MESSAGE, "top_k: model multi", id="top_k"),
        pytest.param({"colour": "red"}, ErrorCode.UNKNOWN_FIELD, "colour", id="unknown field"),
    ],
)
def test_a_message_that_asks_for_the_impossible_fails_as_a_whole(
    pipeline: ClassifyPipeline, kwargs: dict[str, object], code: ErrorCode, text: str
) -> None:
    with pytest.raises(MessageError, match=text) as caught:
        opened(pipeline, tickets=tickets("refund"), **kwargs)

    assert caught.value.code is code


def test_items_of_several_jobs_and_models_are_prepared_in_one_call(pipeline: ClassifyPipeline) -> None:
    jobs = [
        opened(pipeline, tickets=tickets("refund my " * 40 + "card late")),
        opened(pipeline, tickets=tickets("refund my " * 40 + "card late"), truncation="head"),
        opened(pipeline, tickets=tickets("refund my " * 40 + "card late"), model="multi"),
    ]
    pipeline.prepare([job.items[0] for job in jobs])

    assert [job.items[0].length for job in jobs] == [32, 32, 64]
    assert len({job.items[0].key for job in jobs}) == 3


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda children: st.lists(children, max_size=2) | st.dictionaries(st.text(), children, max_size=2),
    max_leaves=4,
)
fields = st.dictionaries(st.sampled_from(["text"]), values) | st.dictionaries(
    st.sampled_from(["subject", "body"]), values
)


@settings(max_examples=150, deadline=None)
@given(rows=st.lists(fields, min_size=1, max_size=8))
def test_every_ticket_has_one_outcome_whatever_its_text(
    pipeline: ClassifyPipeline, models: Mapping[str, TicketClassifier], rows: list[dict[str, object]]
) -> None:
    message = [{"id": str(index), **row} for index, row in enumerate(rows)]

    results = classify(pipeline, models, tickets=message).results

    assert [ticket.id for ticket in results] == [str(index) for index in range(len(rows))]
    assert all((ticket.label is None) == (ticket.error is not None) for ticket in results)
