"""What `ocr.documents` returned is a message of `classify.tickets`."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from schemas import ocr_examples
from schemas.chain import tickets_of
from schemas.errors import ErrorCode, MessageError
from schemas.results import ClassifyResult
from tasks.classify.model import TicketClassifier
from tasks.classify.pipeline import ClassifyPipeline
from tests.tiny_models import LABELS, write_tiny_model
from worker.jobs import Cancellation, Job
from worker.models.repository import load_dir
from worker.models.session import Session


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> TicketClassifier:
    model = load_dir(write_tiny_model(tmp_path_factory.mktemp("models") / "tiny", max_length=32))
    return TicketClassifier(model, Session(model.onnx_path, ["CPUExecutionProvider"], threads=1))


def read(*texts: str | None) -> dict[str, Any]:
    """A result of `ocr.documents` over documents d0, d1 and so on; None is one that could not be read."""
    example = ocr_examples.result_example()
    good, failed = example["results"]
    results = [
        failed | {"id": f"d{index}"} if text is None else good | {"id": f"d{index}", "text": text}
        for index, text in enumerate(texts)
    ]
    return example | {"results": results}


def classify(classifier: TicketClassifier, args: list[object], kwargs: Mapping[str, object]) -> ClassifyResult:
    """Take a message through the pipeline and its model, and its result through JSON and the contract."""
    pipeline = ClassifyPipeline({classifier.name: classifier}, classifier.name)
    job = Job("job", pipeline, 0.0)
    pipeline.open(job, args, kwargs)
    pipeline.prepare(job.items)
    for item in job.items:
        if item.outcome is None:
            (item.outcome,) = classifier.run([item.features], Cancellation())
    return ClassifyResult.model_validate_json(json.dumps(pipeline.complete(job), allow_nan=False))


def test_documents_become_tickets_of_their_ids_and_texts_in_order() -> None:
    kwargs, errors = tickets_of([read("refund", "my parcel")], {"top_k": 2})
    assert kwargs == {
        "tickets": [{"id": "d0", "text": "refund"}, {"id": "d1", "text": "my parcel"}],
        "top_k": 2,
    }
    assert errors == {}


def test_the_example_of_the_contract_can_be_passed_on() -> None:
    kwargs, errors = tickets_of([ocr_examples.result_example()], {})
    assert [ticket["id"] for ticket in kwargs["tickets"]] == ["T-1001", "T-1002"]
    assert {name: error.code for name, error in errors.items()} == {"T-1002": ErrorCode.DAMAGED_DOCUMENT}


def test_a_document_that_failed_keeps_its_error_and_its_neighbours_are_labelled(classifier: TicketClassifier) -> None:
    first, failed, last = classify(classifier, [read("my parcel is late", None, "refund")], {"top_k": 2}).results

    assert [one.id for one in (first, failed, last)] == ["d0", "d1", "d2"]
    assert first.label in LABELS
    assert last.label in LABELS
    assert last.scores is not None
    assert len(last.scores) == 2
    assert failed.label is None
    assert failed.error is not None
    assert failed.error.code is ErrorCode.DAMAGED_DOCUMENT
    assert failed.error.message == "the document ends within its header"


def test_text_from_a_document_is_labelled_as_the_same_text_from_a_ticket(classifier: TicketClassifier) -> None:
    chained = classify(classifier, [read("my parcel is late")], {})
    sent = classify(classifier, [], {"tickets": [{"id": "d0", "text": "my parcel is late"}]})
    assert chained.results == sent.results


def test_a_document_without_text_is_an_empty_ticket(classifier: TicketClassifier) -> None:
    blank, other = classify(classifier, [read("\f", "refund")], {}).results
    assert blank.error is not None
    assert blank.error.code is ErrorCode.EMPTY_TEXT
    assert other.label in LABELS


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ([[{"id": "a", "text": "secret"}]], {}),
        ([read("secret"), read("secret")], {}),
        ([read("secret")], {"tickets": [{"id": "a", "text": "secret"}]}),
        ([read("secret") | {"colour": "secret"}], {}),
        ([{"results": []}], {}),
        (["secret"], {}),
        ([None], {}),
    ],
    ids=["tickets", "two results", "tickets too", "a field too many", "no results", "text", "null"],
)
def test_any_other_positional_argument_is_refused_and_not_quoted(
    classifier: TicketClassifier, args: list[object], kwargs: Mapping[str, object]
) -> None:
    with pytest.raises(MessageError) as refusal:
        classify(classifier, args, kwargs)
    assert refusal.value.code is ErrorCode.INVALID_MESSAGE
    assert "secret" not in str(refusal.value)
    assert refusal.value.__context__ is None
