"""How a message is parsed, and refused if it does not fit its model: one finding, its field's path, and no value.

The text ends in logs and in the stored result, so it quotes nothing of the input.
This module does not know which messages there are.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from schemas.errors import ErrorCode, MessageError

_TEXTS: Final = {
    "missing": "this field is required",
    "model_type": "must be an object",
    "list_type": "must be a list",
}


_Model = TypeVar("_Model", bound=BaseModel)


def parsed(  # noqa: PLR0913 - what came, and how to speak of it
    model: type[_Model],
    args: Sequence[object],
    kwargs: Mapping[str, object],
    *,
    codes: Mapping[str, ErrorCode],
    texts: Mapping[str, str],
    nested: type[BaseModel] | None = None,
) -> _Model:
    """Return the message in positional and keyword arguments, as they come out of its JSON.

    Args:
        model: the message's own.
        args: what came by position, which is always wrong.
        kwargs: what came by keyword.
        codes: the code by pydantic's type of finding; otherwise it is `invalid_message`.
        texts: better words than pydantic's, by type of finding.
        nested: the model of what the message nests, if it does.

    Raises:
        MessageError: the message is wrong as a whole; the text names the field that is.
    """
    if args:
        raise MessageError(ErrorCode.INVALID_MESSAGE, "give the arguments by keyword, none by position")
    try:
        return model.model_validate(kwargs)
    except ValidationError as error:
        refused = _refusal(error, (model, nested or model), codes, texts)
    raise refused  # outside of `except`: pydantic's own error must not follow it into a traceback


def _refusal(
    error: ValidationError,
    models: Sequence[type[BaseModel]],
    codes: Mapping[str, ErrorCode],
    texts: Mapping[str, str],
) -> MessageError:
    """Return the most telling of pydantic's findings: an unknown field often explains a missing one."""
    findings = error.errors(include_url=False, include_context=False, include_input=False)
    finding = next((one for one in findings if one["type"] == "extra_forbidden"), findings[0])
    code = ErrorCode.UNKNOWN_FIELD if finding["type"] == "extra_forbidden" else codes.get(finding["type"])
    return MessageError(
        code or ErrorCode.INVALID_MESSAGE, f"{_spelled(finding['loc'])}: {_text(finding, models, texts)}"
    )


def _text(finding: ErrorDetails, models: Sequence[type[BaseModel]], texts: Mapping[str, str]) -> str:
    kind, path = finding["type"], finding["loc"]
    if kind == "extra_forbidden":
        model = models[0] if len(path) == 1 else models[-1]
        return f"there is no such field; the fields are {', '.join(model.model_fields)}"
    return texts.get(kind) or _TEXTS.get(kind) or finding["msg"]


_FIELD_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


def _spelled(path: Sequence[int | str]) -> str:
    """A path such as `tickets[3].text`; a key that looks like no field name may be text and is left out."""
    spelled = ""
    for step in path:
        if isinstance(step, int):
            spelled += f"[{step}]"
        else:
            spelled += f".{step}" if _FIELD_NAME.fullmatch(step) else ".<not a field name>"
    return spelled.removeprefix(".") or "the arguments"
