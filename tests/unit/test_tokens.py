import json
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from schemas.messages import Truncation
from tasks.classify.tokens import TicketEncoder
from tests.tiny_models import WORDS, write_tiny_model
from worker.errors import ModelError

MAX_LENGTH = 16
ROOM = MAX_LENGTH - 2
CLS, SEP, UNK = 2, 3, 1
BANKING77 = Path(__file__).parents[2] / "../shared/data/models/banking77-minilm-l6"

needs_banking77 = pytest.mark.skipif(not BANKING77.is_dir(), reason="the shared model is not beside this checkout")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = write_tiny_model(tmp_path_factory.mktemp("model"), max_length=MAX_LENGTH, fixed_padding=True)
    return directory / "tokenizer.json"


@pytest.fixture(scope="module")
def encoder(path: Path) -> TicketEncoder:
    return TicketEncoder(path, MAX_LENGTH)


@pytest.fixture(scope="module")
def vocabulary(path: Path) -> dict[str, int]:
    return Tokenizer.from_file(str(path)).get_vocab()


def ids_of(encoder: TicketEncoder, text: str, truncation: Truncation = "head_tail") -> list[int]:
    (encoded,) = encoder.encode([text], truncation)
    assert encoded is not None
    return encoded.ids.tolist()


def test_a_text_gets_its_special_tokens_and_no_padding(encoder: TicketEncoder, vocabulary: dict[str, int]) -> None:
    (encoded,) = encoder.encode(["my parcel is late"], "head_tail")

    assert encoded is not None
    assert encoded.ids.tolist() == [CLS, *(vocabulary[word] for word in ("my", "parcel", "is", "late")), SEP]
    assert (encoded.tokens, encoded.truncated) == (6, False)


def test_texts_come_back_in_order_whatever_their_neighbours(encoder: TicketEncoder) -> None:
    texts = ["help", "my card " * 500, "", "the order", "x " * 7000, "hello"]

    together = encoder.encode(texts, "head_tail")

    assert [t and t.ids.tolist() for t in together] == [
        t and t.ids.tolist() for text in texts for t in encoder.encode([text], "head_tail")
    ]


@pytest.mark.parametrize("words", [ROOM - 1, ROOM, ROOM + 1, 10 * ROOM, 1000 * ROOM])
@pytest.mark.parametrize("truncation", ["head", "head_tail"])
def test_a_long_text_keeps_its_ends_and_says_so(
    encoder: TicketEncoder, vocabulary: dict[str, int], words: int, truncation: Truncation
) -> None:
    text = [WORDS[index % 30] for index in range(words)]
    tail = ROOM // 2 if truncation == "head_tail" else 0
    kept = text if words <= ROOM else text[: ROOM - tail] + text[words - tail :]

    (encoded,) = encoder.encode([" ".join(text)], truncation)

    assert encoded is not None
    assert encoded.ids.tolist() == [CLS, *(vocabulary[word] for word in kept), SEP]
    assert encoded.truncated == (words > ROOM)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(" " * 5000 + "refund" + " " * 5000, id="a word among blanks"),
        pytest.param("refund " + "\u200b" * 100_000, id="a word before zero-width characters"),
        pytest.param("x" * 1_000_000 + " refund", id="a word after 1 MB without a space"),
    ],
)
def test_a_cut_that_left_too_few_tokens_is_taken_back(
    encoder: TicketEncoder, vocabulary: dict[str, int], text: str
) -> None:
    ids = ids_of(encoder, text)

    assert [index for index in ids if index != UNK] == [CLS, vocabulary["refund"], SEP]
    assert encoder.encode([text], "head_tail")[0].truncated is False  # type: ignore[union-attr]


words = st.sampled_from([*WORDS, "ab", "Übermut", "x" * 150, "!", "a-b-c", "漢字", "🙂", "\u200b"])
gaps = st.sampled_from([" ", "  ", "\n", "\t\t", " " * 200])


@settings(max_examples=200, deadline=None)
@given(pieces=st.lists(st.tuples(words, gaps), max_size=120), truncation=st.sampled_from(["head", "head_tail"]))
def test_cutting_first_never_changes_what_the_model_sees(
    path: Path, pieces: list[tuple[str, str]], truncation: Truncation
) -> None:
    text = "".join(word + gap for word, gap in pieces)
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    content = tokenizer.encode(text, add_special_tokens=False).ids
    tail = ROOM // 2 if truncation == "head_tail" else 0
    kept = content if len(content) <= ROOM else content[: ROOM - tail] + content[len(content) - tail :]

    (encoded,) = TicketEncoder(path, MAX_LENGTH).encode([text], truncation)

    if set(content) <= {UNK}:
        assert encoded is None
    else:
        assert encoded is not None
        assert encoded.ids.tolist() == [CLS, *kept, SEP]
        assert encoded.truncated == (len(content) > ROOM)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param(" \n\t\u2003", id="white space"),
        pytest.param("\u200b\ufeff\u00ad", id="zero width"),
        pytest.param("\x00\x07", id="control characters"),
        pytest.param("[CLS] [PAD][SEP]", id="special tokens only"),
        pytest.param("漢字かな", id="unknown words only"),
        pytest.param(" " * 100_000, id="long white space"),
    ],
)
def test_a_text_that_the_tokenizer_knows_nothing_of_is_none(encoder: TicketEncoder, text: str) -> None:
    assert encoder.encode([text, "help"], "head_tail")[0] is None


def test_an_unknown_word_beside_a_known_one_is_kept(encoder: TicketEncoder, vocabulary: dict[str, int]) -> None:
    assert ids_of(encoder, "help 漢") == [CLS, vocabulary["help"], UNK, SEP]


def test_no_texts_give_no_tokens(encoder: TicketEncoder) -> None:
    assert encoder.encode([], "head") == []


def test_a_tokenizer_without_special_tokens_gets_none(path: Path, tmp_path: Path) -> None:
    content = json.loads(path.read_text())
    (tmp_path / "tokenizer.json").write_text(json.dumps(content | {"post_processor": None}))

    assert CLS not in ids_of(TicketEncoder(tmp_path / "tokenizer.json", MAX_LENGTH), "help")


def test_tokenising_leaves_other_threads_running(encoder: TicketEncoder) -> None:
    ended = threading.Event()
    thread = threading.Thread(target=lambda: (encoder.encode(["x" * 2_000_000], "head"), ended.set()))
    thread.start()
    steps = 0
    while not ended.wait(0.005):
        steps += 1
    thread.join()

    assert steps > 3


@pytest.mark.parametrize("max_length", [1, 2])
def test_a_maximum_length_without_room_for_text_is_refused(path: Path, max_length: int) -> None:
    with pytest.raises(ModelError, match="leaves no room beside 2 special tokens"):
        TicketEncoder(path, max_length)


def test_a_broken_tokenizer_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")

    with pytest.raises(ModelError, match=r"tokenizer\.json cannot be loaded"):
        TicketEncoder(tmp_path / "tokenizer.json", MAX_LENGTH)


@needs_banking77
def test_the_ids_are_those_that_the_real_model_was_trained_on() -> None:
    golden = json.loads((BANKING77 / "golden.json").read_text())
    encoder = TicketEncoder(BANKING77 / "tokenizer.json", golden["max_length"])
    expected = {text: ids for text, ids in zip(golden["texts"], golden["input_ids"], strict=True) if text}

    assert [ids_of(encoder, text) for text in expected] == list(expected.values())
