"""Every `batchmill …` that the documentation shows is one that the command line takes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import pytest

from tasks.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_BLOCK: Final = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
_SHELLS: Final = ("", "sh", "bash")
_INLINE: Final = re.compile(r"`(batchmill [^`]*)`")
_NOT_A_COMMAND: Final = re.compile(r"…|\$\(|\[|COMMAND")  # a pattern for people, or what only a shell could fill in

_BEFORE_A_COMMAND: Final = ("", "--", "exec", "until", "while", "if", "then", "do", "!")


def commands(text: str) -> Iterator[list[str]]:
    """Yield the arguments of each `batchmill` in blocks of shell and between backticks."""
    for block in (block for language, block in _BLOCK.findall(text) if language in _SHELLS):
        for line in block.replace("\\\n", " ").splitlines():
            yield from _in_line(line)
    for inline in _INLINE.findall(_BLOCK.sub("", text)):
        yield from _in_line(" ".join(inline.split()))


def _in_line(line: str) -> Iterator[list[str]]:
    """Yield what stands behind each `batchmill` up to the next operator of the shell."""
    if "batchmill" not in line or _NOT_A_COMMAND.search(line):
        return
    words = shlex.shlex(line, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    words_before: list[str] = []
    found: list[str] | None = None
    for word in [*words, ";"]:
        if set(word) <= set(words.punctuation_chars):
            if found:
                yield found
            words_before, found = [], None
        elif found is not None:
            found.append(word)
        elif word.rpartition("/")[2] == "batchmill" and _may_begin(words_before):
            found = []
        else:
            words_before.append(word)


def _may_begin(words_before: Sequence[str]) -> bool:
    """Whether a command begins behind these words, and not an argument of theirs."""
    last = words_before[-1] if words_before else ""
    return last in _BEFORE_A_COMMAND or "=" in last or words_before[-2:-1] == ["exec"]  # compose exec SERVICE …


def refusal(arguments: Sequence[str]) -> str | None:
    """Return why the command line would not take these arguments; what they mean is not looked at."""
    command: click.Command = main
    context = click.Context(main, info_name="batchmill")
    rest = list(arguments)
    while isinstance(command, click.Group):
        if not rest or rest[0].startswith("-"):
            return None
        name = rest.pop(0)
        found = command.get_command(context, name)
        if found is None:
            return f"there is no command {name}"
        command, context = found, click.Context(found, parent=context, info_name=name)
    try:
        command.make_parser(context).parse_args(rest)
    except click.NoSuchOption as error:
        return error.format_message()
    except click.BadOptionUsage:  # one that a sentence names lacks its value
        return None
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_on_the_page_exists_with_its_options(page: Path) -> None:
    refused = {" ".join(found): why for found in commands(page.read_text("utf-8")) if (why := refusal(found))}

    assert refused == {}


def test_the_pages_show_most_of_the_commands() -> None:
    shown = {found[0] for page in PAGES for found in commands(page.read_text("utf-8")) if found}

    assert shown >= {"worker", "enqueue", "queues", "jobs", "dead", "purge", "bulk", "model", "doctor", "exporter"}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("batchmill drain", "there is no command drain"),
        ("batchmill dead list --older-than 1", "No such option"),
        ("sleep 1 && batchmill bulk sleep | cat", "there is no command sleep"),
        ("until batchmill purge --id 7; do sleep 5; done", "No such option"),
    ],
)
def test_what_does_not_exist_would_be_noticed(line: str, why: str) -> None:
    (found,) = commands(f"```sh\n{line}\n```")

    assert why in str(refusal(found))


@pytest.mark.parametrize(
    "line",
    ["kubectl -n batchmill get pods", "helm rollback batchmill -n batchmill", "docker build -t batchmill ."],
)
def test_another_programs_argument_is_not_taken_for_the_command(line: str) -> None:
    assert list(commands(f"```sh\n{line}\n```")) == []
