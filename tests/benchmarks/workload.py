"""The standard workload: seeded tickets whose lengths spread as real tickets' lengths do.

Lengths decide what a batcher gains and what padding costs, so the benchmark draws them from a log-normal
law, 5 to 200 words; with the MiniLM tokenizer that makes a median near 35 and a mean near 50 tokens. The
words are this project's own. The module knows no tokenizer and no queue; real data sets are read only where
they are present.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokenizers import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MEDIAN_WORDS = 24.0
SPREAD = 0.95
WORDS_MIN = 5
WORDS_MAX = 200
NUMBER_EVERY = 12  # one word in so many is a number: orders, amounts, error codes

WORDS = """
the the the the the the to to to to to i i i i i my my my my and and and and it it it is is is was was not
not not a a a a of of in in in on on for for with you you your we our have have has had can cannot will
would could please thanks hello again still after before since when because but that this there they them
from at an be been no yet account invoice order payment refund delivery parcel password login printer router
server ticket contract address customer number monday yesterday morning week month today twice nobody
someone team phone email website app screen button message error page update version password code link
attachment reply answer support question problem help charged cancelled received sent opened closed waiting
working broken missing wrong late slow locked blocked lost stopped arrived expired renewed returned
installed updated changed confirmed promised tried called written asked subscription cancellation
replacement reimbursement confirmation authentication two-factor outage maintenance firmware headset monitor
keyboard laptop docking-station cable adapter battery warranty serial shipment courier warehouse doorstep
neighbour signature tracking customs branch card statement balance overdraft transfer fee tax discount
voucher price plan upgrade downgrade trial licence seat user admin role permission dashboard export import
spreadsheet calendar notification setting language browser cache cookie certificate connection network wifi
vpn timeout latency crash restart backup restore data file folder upload download sync integration webhook
token feature feedback suggestion praise complaint manager colleague office department deadline meeting
urgent important immediately tomorrow soon unfortunately apparently however therefore otherwise actually
finally several another every
""".split()  # noqa: SIM905 - a list of strings would take a page


@dataclass(frozen=True, slots=True)
class Ticket:
    """One text with the id that its job will carry."""

    id: str
    text: str


def tickets(count: int, seed: int = 0) -> list[Ticket]:
    """`count` distinct tickets, the same for the same seed on every machine."""
    rng = random.Random(seed)  # noqa: S311 - a workload, not a secret
    seen: set[str] = set()
    made: list[Ticket] = []
    while len(made) < count:
        text = _text(rng, _word_count(rng))
        if text not in seen:
            seen.add(text)
            made.append(Ticket(id=f"bench-{seed}-{len(made)}", text=text))
    return made


def data_set(path: Path, count: int) -> list[Ticket]:
    """The first `count` distinct texts of a Parquet file with a column `text`."""
    from pyarrow import parquet  # noqa: PLC0415 - only where real data is present

    column = parquet.read_table(path, columns=["text"]).column("text").to_pylist()
    texts = list(dict.fromkeys(str(text) for text in column))[:count]
    return [Ticket(id=f"{path.stem}-{index}", text=text) for index, text in enumerate(texts)]


def lengths(tickets_of: Sequence[Ticket], tokenizer_file: Path) -> list[int]:
    """Tokens of each ticket, special tokens included, before any truncation."""
    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return [len(encoding.ids) for encoding in tokenizer.encode_batch_fast([ticket.text for ticket in tickets_of])]


def _word_count(rng: random.Random) -> int:
    while True:
        words = round(MEDIAN_WORDS * rng.lognormvariate(0.0, SPREAD))
        if WORDS_MIN <= words <= WORDS_MAX:
            return words


def _text(rng: random.Random, words: int) -> str:
    picked = [
        str(rng.randrange(10, 99999)) if rng.randrange(NUMBER_EVERY) == 0 else rng.choice(WORDS) for _ in range(words)
    ]
    sentences = []
    while picked:
        length = rng.randrange(6, 16)
        sentences.append(" ".join(picked[:length]).capitalize() + ".")
        picked = picked[length:]
    return " ".join(sentences)
