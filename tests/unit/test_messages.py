"""The request of `classify.tickets`: what is accepted, what is refused, and what a refusal says."""

import re
import timeit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import ErrorCode, MessageError
from schemas.messages import ClassifyTickets, Ticket, parse_classify

TICKET = {"id": "a", "text": "hello"}

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(max_size=8)
json_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4)
)

FIELDS = ("tickets", "model", "top_k", "truncation", "threshold", "schema_version", "args", "text")
ticket_like = st.dictionaries(st.sampled_from(("id", "text", "subject", "body", "txt")), json_values, max_size=5)
almost_tickets = st.lists(ticket_like | json_values, max_size=4)
almost_messages = st.dictionaries(st.sampled_from(FIELDS), json_values, max_size=6).flatmap(
    lambda message: st.one_of(json_values, almost_tickets).map(lambda tickets: {**message, "tickets": tickets})
)

ids = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=256)
tickets = st.one_of(
    st.fixed_dictionaries({"id": ids, "text": json_values}),
    st.fixed_dictionaries({"id": ids}, optional={"subject": json_values, "body": json_values}),
)
messages = st.fixed_dictionaries(
    {"tickets": st.lists(tickets, min_size=1, max_size=5, unique_by=lambda ticket: ticket["id"])},
    optional={
        "model": st.none() | st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=256),
        "top_k": st.integers(1, 100),
        "truncation": st.sampled_from(("head_tail", "head")),
        "threshold": st.none() | st.floats(0, 1),
        "schema_version": st.just(1),
    },
)


def refusal_of(arguments: object) -> MessageError | None:
    try:
        parse_classify((), arguments)  # type: ignore[arg-type]  # anything may be in a message
    except MessageError as error:
        return error
    return None


def refusal(*args: object, **kwargs: object) -> MessageError:
    with pytest.raises(MessageError) as caught:
        parse_classify(args, kwargs)
    return caught.value


@given(messages)
@settings(deadline=None)
def test_every_right_message_is_accepted_with_its_values_as_they_are(message: dict[str, object]) -> None:
    request = parse_classify((), message)
    assert [ticket.model_dump(exclude_unset=True) for ticket in request.tickets] == message["tickets"]
    assert request.model_dump(exclude_unset=True) == message


@given(almost_messages | st.dictionaries(st.text(), json_values) | json_values)
@settings(deadline=None)
def test_any_arguments_are_parsed_or_refused_with_a_code_and_a_path(arguments: object) -> None:
    error = refusal_of(arguments)
    if error is None:
        return
    code, path, text = str(error).split(": ", 2)
    assert code == error.code
    assert (
        path in {"the arguments", "<not a field name>"} or re.split(r"[.\[]", path)[0].replace("-", "_").isidentifier()
    )
    assert text
    assert error.args == (str(error),)
    assert (error.__cause__, error.__context__) == (None, None)


CANARY = "zebra-7391 canary"


@given(st.deferred(lambda: almost_messages.map(planted)))
@settings(deadline=None)
def test_a_refusal_quotes_no_value(message: dict[str, object]) -> None:
    error = refusal_of(message)
    assert error is None or error.code == ErrorCode.DUPLICATE_ID or CANARY not in str(error)


def planted(value: object) -> object:
    """`value` with the canary instead of every string and number, and under a key that is no field's name."""
    match value:
        case dict():
            return {key: planted(inner) for key, inner in value.items()} | ({CANARY: 1} if "txt" in value else {})
        case list():
            return [planted(inner) for inner in value]
        case str() | int() | float() | bytes():
            return CANARY
    return value


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        pytest.param({}, "invalid_message: tickets: this field is required", id="nothing"),
        pytest.param({"tickets": None}, "invalid_message: tickets: must be a list", id="null for tickets"),
        pytest.param({"tickets": "ab"}, "invalid_message: tickets: must be a list", id="text for tickets"),
        pytest.param({"tickets": []}, "no_tickets: tickets: a message needs at least one ticket", id="0 tickets"),
        pytest.param(
            {"tickets": [{"id": str(number), "text": "x"} for number in range(10_001)]},
            "too_many_tickets: tickets: a message takes at most 10000 tickets",
            id="10,001 tickets",
        ),
        pytest.param(
            {"tickets": [TICKET, 7]},
            "invalid_message: tickets[1]: must be an object",
            id="number for a ticket",
        ),
        pytest.param(
            {"tickets": [{"text": "x"}]}, "invalid_message: tickets[0].id: this field is required", id="no id"
        ),
        pytest.param(
            {"tickets": [TICKET, {"id": "b", "txt": "x"}]},
            "unknown_field: tickets[1].txt: there is no such field; the fields are id, text, subject, body",
            id="unknown field of a ticket",
        ),
        pytest.param(
            {"ticket": [TICKET]},
            "unknown_field: ticket: there is no such field; "
            "the fields are tickets, model, top_k, truncation, threshold, schema_version",
            id="an unknown field rather than the one that it stands for",
        ),
        pytest.param(
            {"tickets": [TICKET, {"id": "b", "text": "x"}, TICKET]},
            "duplicate_id: tickets: [0] and [2] both have the id 'a'",
            id="duplicate id",
        ),
        pytest.param(
            {"tickets": [TICKET | {"subject": "x"}]},
            "invalid_message: tickets[0]: give either text, or subject and body",
            id="text and subject",
        ),
    ],
)
def test_a_refusal_names_the_code_the_path_and_the_reason(arguments: dict[str, object], text: str) -> None:
    assert str(refusal(**arguments)) == text


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model", ""),
        ("model", "m" * 257),
        ("model", 3),
        ("top_k", 0),
        ("top_k", 101),
        ("top_k", True),
        ("top_k", 1.5),
        ("top_k", "1"),
        ("top_k", None),
        ("truncation", "tail"),
        ("truncation", None),
        ("threshold", -0.1),
        ("threshold", 1.1),
        ("threshold", float("nan")),
        ("threshold", True),
        ("schema_version", 2),
        ("schema_version", True),
    ],
)
def test_a_wrong_option_is_refused_by_its_name(field: str, value: object) -> None:
    error = refusal(tickets=[TICKET], **{field: value})
    assert str(error).startswith(f"invalid_message: {field}: ")


@pytest.mark.parametrize("wrong_id", ["", "i" * 257, 5, None, ["a"], "\ud800"])
def test_a_wrong_id_is_refused_by_its_path(wrong_id: object) -> None:
    error = refusal(tickets=[TICKET, {"id": wrong_id, "text": "x"}])
    assert str(error).startswith("invalid_message: tickets[1].id: ")


@pytest.mark.parametrize("text", [None, 5, True, [], {}, "", " \u200b", "\ud800", "\0", b"x"], ids=repr)
def test_a_wrong_text_is_left_to_its_item(text: object) -> None:
    request = parse_classify((), {"tickets": [{"id": "a", "text": text}, TICKET | {"id": "b"}]})
    assert request.tickets[0].text == text


def test_a_field_left_out_differs_from_a_null() -> None:
    request = parse_classify((), {"tickets": [{"id": "a", "subject": None}, {"id": "b"}]})
    assert [ticket.model_fields_set for ticket in request.tickets] == [{"id", "subject"}, {"id"}]


def test_positional_arguments_are_refused() -> None:
    error = refusal([TICKET])
    assert str(error) == "invalid_message: give the arguments by keyword, none by position"


def test_a_key_that_may_be_text_is_not_quoted() -> None:
    error = refusal(tickets=[{"id": "a", "My card 4711 was stolen": 1}])
    assert str(error).startswith("unknown_field: tickets[0].<not a field name>: ")


def test_a_message_of_10000_wrong_tickets_is_refused_at_the_first() -> None:
    error = refusal(tickets=[{"id": str(number), "txt": "x"} for number in range(10_000)])
    assert str(error).startswith("unknown_field: tickets[0].txt: ")


def test_a_producer_can_build_and_send_a_request() -> None:
    request = ClassifyTickets(tickets=[Ticket(id="a", body="x")], top_k=3)
    assert request.model_dump(exclude_unset=True) == {"tickets": [{"id": "a", "body": "x"}], "top_k": 3}


@pytest.mark.parametrize(
    ("count", "limit_s"),
    [
        pytest.param(1, 15e-6, id="1 ticket in 15 µs"),
        pytest.param(10_000, 60e-3, id="10,000 tickets in 60 ms"),
    ],
)
def test_parsing_costs_little_beside_inference(count: int, limit_s: float) -> None:
    message = {"tickets": [{"id": str(n), "subject": "Invoice", "body": "text " * 50} for n in range(count)]}
    repeats = 20_000 // count
    best_s = min(timeit.repeat(lambda: parse_classify((), message), number=repeats, repeat=5)) / repeats
    assert best_s <= limit_s
