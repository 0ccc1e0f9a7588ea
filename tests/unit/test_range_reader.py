from __future__ import annotations

import io
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.storage.ranges import RangeReader

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("read"), st.integers(-1, 300)),
        st.tuples(st.just("readinto"), st.integers(0, 300)),
        st.tuples(st.just("seek"), st.integers(0, 300)),
        st.tuples(st.just("end"), st.integers(0, 50)),
    ),
    max_size=30,
)


@given(content=st.binary(max_size=250), read_ahead_bytes=st.integers(1, 300), steps=STEPS)
def test_it_reads_as_a_file_does(content: bytes, read_ahead_bytes: int, steps: list[tuple[str, int]]) -> None:
    def fetch(start: int, end: int) -> bytes:
        assert 0 <= start < end <= len(content)
        return content[start:end]

    model = io.BytesIO(content)
    with RangeReader(len(content), fetch, read_ahead_bytes=read_ahead_bytes) as reader:
        for step, number in steps:
            match step:
                case "read":
                    assert reader.read(number) == model.read(number)
                case "readinto":
                    into, expected = bytearray(number), bytearray(number)
                    assert reader.readinto(into) == model.readinto(expected)
                    assert into == expected
                case "seek":
                    assert reader.seek(number) == model.seek(number)
                case "end":
                    back = min(number, len(content))
                    assert reader.seek(-back, os.SEEK_END) == model.seek(-back, os.SEEK_END)
            assert reader.tell() == model.tell()


def test_a_large_read_is_one_request_and_small_ones_share() -> None:
    asked: list[tuple[int, int]] = []

    def fetch(start: int, end: int) -> bytes:
        asked.append((start, end))
        return bytes(end - start)

    with RangeReader(1000, fetch, read_ahead_bytes=100) as reader:
        reader.read(500)
        for _ in range(10):
            reader.read(10)
    assert asked == [(0, 500), (500, 600)]


def test_it_lets_go_once_and_then_refuses() -> None:
    released: list[int] = []
    reader = RangeReader(1, lambda _start, _end: b"x", lambda: released.append(1))
    reader.close()
    reader.close()
    assert released == [1]
    with pytest.raises(ValueError, match="closed"):
        reader.read(1)


def test_a_failed_fetch_moves_nothing() -> None:
    answers = iter([OSError("lost"), b"abc"])

    def fetch(_start: int, _end: int) -> bytes:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    with RangeReader(3, fetch) as reader:
        with pytest.raises(OSError, match="lost"):
            reader.read()
        assert reader.read() == b"abc"
