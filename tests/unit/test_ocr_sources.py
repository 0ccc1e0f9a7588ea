"""Where a document may come from: one plain way to write an address, and nothing is decoded or guessed."""

from __future__ import annotations

import base64

import pytest

from schemas.errors import ErrorCode
from tasks.ocr.sources import AllowedPrefix, check_uri, decode_inline
from tests.addresses import ALLOWED, FORBIDDEN, PASSED
from worker.errors import ItemFailed


@pytest.mark.parametrize("uri", PASSED.values(), ids=PASSED)
def test_a_plain_address_passes(uri: str) -> None:
    check_uri(uri, ALLOWED)


@pytest.mark.parametrize("uri", FORBIDDEN.values(), ids=FORBIDDEN)
def test_any_other_address_is_forbidden(uri: str) -> None:
    with pytest.raises(ItemFailed) as failed:
        check_uri(uri, ALLOWED)
    assert failed.value.code is ErrorCode.FORBIDDEN_URI


def test_the_table_is_long() -> None:
    assert len(FORBIDDEN) >= 200


@pytest.mark.parametrize("uri", PASSED.values(), ids=PASSED)
def test_without_an_allow_list_everything_is_forbidden(uri: str) -> None:
    with pytest.raises(ItemFailed):
        check_uri(uri, ())


def test_a_refusal_does_not_repeat_the_address() -> None:
    with pytest.raises(ItemFailed) as failed:
        check_uri("s3://user:hunter2@scans/a.pdf", ALLOWED)
    assert "hunter2" not in str(failed.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s3://scans", AllowedPrefix("scans")),
        ("s3://scans/", AllowedPrefix("scans")),
        ("s3://scans/in/", AllowedPrefix("scans", "in/")),
        ("s3://scans/in/2026/", AllowedPrefix("scans", "in/2026/")),
    ],
)
def test_an_allowed_prefix_is_read(text: str, expected: AllowedPrefix) -> None:
    assert AllowedPrefix.parse(text) == expected


@pytest.mark.parametrize(
    "text", ["", "scans", "s3://", "S3://scans", "s3://scans/in", "s3://scans//", "s3://scans/../", "s3://*/", "s3://a"]
)
def test_what_is_no_prefix_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"s3://|bucket"):
        AllowedPrefix.parse(text)


@pytest.mark.parametrize("data", [b"", b"a", b"ab", b"abc", b"abcd", bytes(range(256)) * 9])
def test_base64_is_decoded(data: bytes) -> None:
    assert decode_inline(base64.b64encode(data).decode(), 4096) == data


@pytest.mark.parametrize(
    "content",
    [
        "a",
        "ab",
        "abc",
        "abcde",
        "YQ",
        "YQ=",
        "YQ===",
        "YQ====",
        "YR==",
        "YWJ=",
        "=",
        "====",
        "Y===",
        "YQ==YQ==",
        "YQ==YWJj",
        "YWJj\n",
        "YWJj\nYWJj",
        "YWJj YWJj",
        " YWJj",
        "YW-_",
        "YWJ\x00",
        "YWJ\u00e4",
        "YWJ\uff21",
        "YWJ\ud800",
        "data:;base64,YWJj",
        "YWJj%3D",
        "YWJj,YWJj",
    ],
)
def test_what_is_no_strict_base64_is_refused(content: str) -> None:
    with pytest.raises(ItemFailed) as failed:
        decode_inline(content, 4096)
    assert failed.value.code is ErrorCode.INVALID_BASE64


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 5, 100])
def test_a_document_is_inline_up_to_the_limit(size: int) -> None:
    content = base64.b64encode(bytes(size + 1)).decode()
    assert decode_inline(content, size + 1) == bytes(size + 1)
    with pytest.raises(ItemFailed) as failed:
        decode_inline(content, size)
    assert failed.value.code is ErrorCode.DOCUMENT_TOO_LARGE


def test_the_length_is_looked_at_before_the_content() -> None:
    with pytest.raises(ItemFailed) as failed:
        decode_inline("?" * 1000, 10)
    assert failed.value.code is ErrorCode.DOCUMENT_TOO_LARGE
