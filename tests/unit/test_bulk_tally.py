"""The statistics of a part count every row once, and add up the same however the rows were cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.bulk import BulkClassify
from schemas.bulk_manifest import SCORE_BINS, PageTally, Tally
from schemas.bulk_ocr import BulkOcr
from schemas.errors import ErrorCode, MessageError
from tasks.bulk.tally import (
    check_rejections,
    differences,
    histogram,
    label_shares,
    merge,
    merge_pages,
    rejection_rate,
    tally_pages,
    tally_rows,
    total,
)

Row = tuple[str | None, float | None, ErrorCode | None]

CODES = (ErrorCode.EMPTY_TEXT, ErrorCode.NULL_TEXT, ErrorCode.INFERENCE_FAILED)
SCORES = st.floats(0, 1).map(lambda score: round(score, 4))

labelled = st.tuples(st.sampled_from(["access", "billing", "Zahlung"]), SCORES, st.none())
rejected = st.tuples(st.none(), st.none(), st.sampled_from(CODES))
unlabelled = st.just((None, None, None))
rows = st.lists(labelled | rejected | unlabelled, max_size=30)


def tally_of(some: list[Row]) -> Tally:
    labels, scores, errors = ([row[column] for row in some] for column in range(3))
    return tally_rows(labels, scores, errors, truncated=len(some) // 3, tokens=7 * len(some), repeated=len(some) // 3)


@given(rows)
def test_every_row_is_counted_once(some: list[Row]) -> None:
    tally = tally_of(some)

    assert tally.rows == len(some)
    assert tally.labelled == sum(label is not None for label, _, _ in some)
    assert tally.rejected == sum(code is not None for _, _, code in some)
    assert tally.labels == {label: [row[0] for row in some].count(label) for label, _, _ in some if label}
    assert tally.errors == {code: [row[2] for row in some].count(code) for _, _, code in some if code}


@given(rows, rows, rows)
def test_adding_up_does_not_depend_on_order_or_grouping(first: list[Row], second: list[Row], third: list[Row]) -> None:
    a, b, c = map(tally_of, (first, second, third))

    total = merge([a, b, c])

    assert total == merge([merge([a, b]), c]) == merge([a, merge([b, c])])
    assert total.model_dump_json() == merge([c, b, a]).model_dump_json()
    assert merge([total]) == merge([total, merge([])]) == total


@given(rows, rows)
def test_the_tally_of_two_parts_is_that_of_their_rows(first: list[Row], second: list[Row]) -> None:
    whole, parts = tally_of(first + second), merge([tally_of(first), tally_of(second)])

    split = {"truncated": parts.truncated, "repeated": parts.repeated}
    assert parts.model_dump_json() == whole.model_copy(update=split).model_dump_json()


@given(rows.flatmap(lambda some: st.tuples(st.just(some), st.permutations(some))))
def test_equal_counts_are_equal_bytes_which_read_back(pair: tuple[list[Row], list[Row]]) -> None:
    encoded, shuffled = (tally_of(some).model_dump_json() for some in pair)

    assert encoded == shuffled
    assert Tally.model_validate_json(encoded) == tally_of(pair[0])


@pytest.mark.parametrize(
    ("score", "place"),
    [(0.0, 0), (0.0499, 0), (0.05, 1), (0.15, 3), (0.55, 11), (0.5, 10), (0.95, 19), (0.9499, 18), (1.0, 19)],
)
def test_a_score_falls_into_the_bin_that_its_lower_end_opens(score: float, place: int) -> None:
    assert histogram([score]) == [int(index == place) for index in range(SCORE_BINS)]


def test_every_lower_end_of_a_bin_as_it_stands_in_a_part_opens_its_bin() -> None:
    assert histogram(round(index * 0.05, 4) for index in range(SCORE_BINS)) == [1] * SCORE_BINS


@pytest.mark.parametrize("score", [-0.1, 1.0001, float("nan"), float("inf")])
def test_a_score_that_is_none_is_an_error(score: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        histogram([score])


@pytest.mark.parametrize(
    ("labels", "scores", "errors"),
    [
        pytest.param(["a"], [0.5, 0.5], [None], id="lengths"),
        pytest.param(["a"], [None], [None], id="no score"),
        pytest.param([None], [0.5], [None], id="no label"),
        pytest.param(["a"], [0.5], [ErrorCode.EMPTY_TEXT], id="a label and an error"),
    ],
)
def test_columns_that_do_not_fit_together_are_an_error(
    labels: list[str | None], scores: list[float | None], errors: list[ErrorCode | None]
) -> None:
    with pytest.raises(ValueError, match="label"):
        tally_rows(labels, scores, errors, truncated=0, tokens=0, repeated=0)


def test_shares_are_of_the_labelled_rows_most_frequent_first() -> None:
    tally = tally_of([("b", 0.9, None)] * 2 + [("c", 0.9, None), ("a", 0.9, None), (None, None, ErrorCode.NULL_TEXT)])

    assert list(label_shares(tally).items()) == [("b", 0.5), ("a", 0.25), ("c", 0.25)]
    assert label_shares(merge([])) == {}


@pytest.mark.parametrize(("ceiling", "fits"), [(0.0, False), (0.2499, False), (0.25, True), (1.0, True)])
def test_a_run_fails_over_the_ceiling_and_not_at_it(ceiling: float, fits: bool) -> None:  # noqa: FBT001 - a table
    tally = tally_of([("a", 0.9, None)] * 3 + [(None, None, ErrorCode.NULL_TEXT)])

    assert rejection_rate(tally) == 0.25
    if fits:
        check_rejections(tally, ceiling)
    else:
        with pytest.raises(MessageError, match=r"too_many_rejected: 1 of 4 rows have an error \(null_text 1\)"):
            check_rejections(tally, ceiling)


def test_a_run_without_rows_rejects_nothing() -> None:
    check_rejections(merge([]), 0.0)


# pages


def test_pages_are_counted_by_what_became_of_them() -> None:
    errors = [None, ErrorCode.DAMAGED_DOCUMENT, None, None]

    assert tally_pages(2, errors, [0.97, None, None, 1.0], lines=9) == PageTally(
        rows=4,
        documents=2,
        pages=3,
        blank=1,
        errors={ErrorCode.DAMAGED_DOCUMENT: 1},
        confidences=[0] * 19 + [2],
        lines=9,
    )


@pytest.mark.parametrize(
    ("errors", "confidences"),
    [([None], []), ([ErrorCode.DAMAGED_DOCUMENT], [0.5])],
    ids=["other lengths", "a confidence and an error"],
)
def test_columns_of_pages_that_contradict_each_other_are_refused(
    errors: list[ErrorCode | None], confidences: list[float | None]
) -> None:
    with pytest.raises(ValueError, match=r"error|argument"):
        tally_pages(1, errors, confidences, lines=0)


def test_counts_of_pages_add_up_however_they_were_cut() -> None:
    errors = [None, ErrorCode.DAMAGED_DOCUMENT, None, None]
    confidences = [0.2, None, None, 0.7]
    rows = range(len(errors))

    whole = tally_pages(4, errors, confidences, lines=4)

    assert merge_pages(tally_pages(1, [errors[row]], [confidences[row]], lines=1) for row in rows) == whole
    assert merge_pages([]) == PageTally()
    assert (label_shares(whole), rejection_rate(whole)) == ({}, 0.25)


def test_counts_of_another_kind_of_run_are_not_added() -> None:
    labels = BulkClassify(inputs=["a"], output="b", text="c")
    pages = BulkOcr(inputs=["a"], output="b")

    assert (total([], labels), total([], pages)) == (Tally(), PageTally())
    for tally, request in ((PageTally(), labels), (Tally(), pages)):
        with pytest.raises(ValueError, match="another kind of run"):
            total([tally], request)


def test_two_counts_differ_by_name() -> None:
    assert differences(PageTally(), PageTally(rows=1, documents=1, pages=1, blank=1)) == [
        "rows",
        "documents",
        "pages",
        "blank",
    ]
    assert "labelled" in differences(Tally(), PageTally())
