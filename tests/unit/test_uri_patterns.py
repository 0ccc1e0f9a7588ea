from __future__ import annotations

import pytest

from worker.storage.patterns import Pattern


@pytest.mark.parametrize(
    ("text", "path", "expected"),
    [
        ("in/*.parquet", "in/a.parquet", True),
        ("in/*.parquet", "in/deep/a.parquet", False),
        ("in/**/*.parquet", "in/a.parquet", True),
        ("in/**/*.parquet", "in/x/y/a.parquet", True),
        ("in/**", "in/x/y", True),
        ("in/**", "in/x/", False),
        ("in/a?", "in/ab", True),
        ("in/a?b", "in/a/b", False),
        ("in/[ab]", "in/b", True),
        ("in/[!ab]", "in/b", False),
        ("in/[!ab]", "in/c", True),
        ("in[!a]b", "in/b", False),
        ("in/[0-9]*", "in/7x", True),
        ("in/[^a]", "in/^", True),
        ("in/[^a]", "in/b", False),
        ("in/[]]", "in/]", True),
        ("in/a[", "in/a[", True),
        ("in/a.b*", "in/axb", False),
        ("in/a[1].csv", "in/a[1].csv", True),
        ("in/*", "in/_SUCCESS", False),
        ("in/**", "in/.tmp/a", False),
        ("in/**", "in/_day=1/a", True),
        ("_in/*", "_in/a", True),
        ("in/_*", "in/_SUCCESS", False),
        ("in", "in", True),
        ("in", "in/a", True),
        ("in", "inner/a", False),
        ("in/", "in/", False),
        ("", "a/b", True),
    ],
)
def test_a_pattern_means_these_paths(text: str, path: str, expected: bool) -> None:  # noqa: FBT001 - a table
    assert Pattern(text).matches(path) is expected


@pytest.mark.parametrize(
    ("text", "literal", "directory"),
    [
        ("in/day=*/a*.parquet", "in/day=", "in/"),
        ("in/a", "in/a", "in/a/"),
        ("in/a/", "in/a/", "in/a/"),
        ("*", "", ""),
        ("", "", ""),
    ],
)
def test_only_what_may_match_is_listed(text: str, literal: str, directory: str) -> None:
    assert (Pattern(text).literal, Pattern(text).directory) == (literal, directory)
