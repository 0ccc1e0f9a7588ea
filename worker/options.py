"""The table of all options, for people: what `batchmill options` prints and docs/configuration.md holds."""

from pathlib import Path
from typing import Final, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from worker.settings import Rate, Settings, env_name

_TYPE_TEXTS: Final[dict[object, str]] = {
    str: "text",
    int: "integer",
    float: "number",
    Path: "path",
    tuple[str, ...]: "list, comma-separated",
    tuple[tuple[str, Rate], ...]: "name=number, comma-separated",
}


def options_table() -> str:
    """Return the Markdown table of all options, in the order of declaration."""
    rows = [
        f"| `{env_name(name)}` | {_type_text(field)} | `{_default_text(field)}` | {field.description} |"
        for name, field in Settings.model_fields.items()
    ]
    return "\n".join(["| variable | type | default | meaning |", "|---|---|---|---|", *rows]) + "\n"


def _type_text(field: FieldInfo) -> str:
    if get_origin(field.annotation) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(field.annotation))
    return _TYPE_TEXTS[field.annotation]


def _default_text(field: FieldInfo) -> str:
    default = field.default
    if not isinstance(default, tuple):
        return str(default)
    return ",".join(part if isinstance(part, str) else f"{part[0]}={part[1]:g}" for part in default)
