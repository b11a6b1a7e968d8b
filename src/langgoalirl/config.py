"""Recipes: TOML files that fill dataclasses. Each field is declared once, with its help.

recipe = load(Recipe, Path("recipes/houses/pretrain.toml"), ["seed=1", "sizes.hidden=256"])
"""

from __future__ import annotations

import dataclasses
import sys
import tomllib
import types
import typing
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from langgoalirl.errors import UserError, nearest
from langgoalirl.files import read_text

T = TypeVar("T")


def option(default: Any, help: str, choices: tuple[str, ...] = ()) -> Any:
    """A dataclass field with its line of help and, for names, the names that are allowed."""
    metadata = {"help": help, "choices": choices}
    if callable(default):
        return dataclasses.field(default_factory=default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def load(kind: type[T], file: Path | None, overrides: Iterable[str] = ()) -> T:
    """A recipe file with `section.field=value` overrides on top, checked field by field."""
    values = {} if file is None else _read(file)
    recipe = from_dict(kind, values, str(file))
    for text in overrides:
        recipe = _override(recipe, text)
    return recipe


def _read(file: Path, within: tuple[Path, ...] = ()) -> dict[str, Any]:
    """A recipe file's values, on top of those of the file beside it that it includes."""
    try:
        values = tomllib.loads(read_text(file))
    except (ValueError, RecursionError) as error:  # of whatever kind tomllib raises
        raise UserError(f"{file}: not valid TOML ({error}).") from None
    if "include" not in values:
        return values
    name = values.pop("include")
    if not isinstance(name, str) or Path(name).name != name:
        raise UserError(f"{file}: 'include' must name a recipe in the same folder.")
    included = file.parent / name
    if included in (file, *within):
        raise UserError(f"{file}: 'include' goes in a circle; remove one of them.")
    return _merged(_read(included, (file, *within)), values)


def from_dict(kind: type[T], values: dict[str, Any], where: str, section: str = "") -> T:
    """A dataclass from nested dictionaries; anything unknown or of the wrong kind is an error."""
    fields = {field.name: field for field in dataclasses.fields(typing.cast(Any, kind))}
    hints = typing.get_type_hints(kind)
    filled: dict[str, Any] = {}
    for name, value in values.items():
        if name not in fields:
            raise UserError(f"{where}: unknown field {section + name!r}.{nearest(name, fields)}")
        filled[name] = _checked(hints[name], fields[name], value, where, f"{section}{name}")
    try:
        return kind(**filled)
    except ValueError as error:
        raise UserError(f"{where}: {error}") from None


def _checked(hint: Any, field: Any, value: Any, where: str, name: str) -> Any:
    """The value in the field's type, or one sentence that says what is wanted."""
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, dict):
            raise UserError(f"{where}: '{name}' is a section; write [{name}] above its fields.")
        return from_dict(typing.cast(Any, hint), value, where, f"{name}.")
    allowed = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if value is None and types.NoneType in allowed:
        return None
    plain = next(kind for kind in allowed if kind is not types.NoneType)
    if not _is_a(plain, value):
        wrong = f"must be {_KINDS[plain]}, not {_shown(value)}; {field.metadata['help']}."
        raise UserError(f"{where}: '{name}' {wrong}")
    choices = field.metadata.get("choices", ())
    if choices and value not in choices:
        raise UserError(f"{where}: '{name}' cannot be {_shown(value)}.{nearest(value, choices)}")
    return plain(value)  # a whole number where any number will do


def _is_a(plain: type, value: Any) -> bool:
    # Not isinstance: to Python, true and false are integers too.
    if plain is float:
        return type(value) in (int, float) and abs(value) <= sys.float_info.max  # so not NaN
    return type(value) is plain


def _shown(value: Any) -> str:
    """What somebody wrote, on one line and cut if it is long."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


_KINDS = {
    int: "a whole number",
    float: "a number",
    str: "text in quotes",
    bool: "true or false",
}


def _override(recipe: T, text: str) -> T:
    """`section.field=value` applied to a recipe; the value is TOML, or text without quotes."""
    name, equals, written = text.partition("=")
    if not equals:
        raise UserError(f"{_shown(text)}: an override is written field=value, for example seed=1.")
    try:
        value = tomllib.loads(f"value = {written}")["value"]
    except (ValueError, RecursionError):
        value = written
    nested: Any = value
    for part in reversed(name.strip().split(".")):
        nested = {part: nested}
    return from_dict(type(recipe), _merged(as_dict(recipe), nested), _shown(text))


def _merged(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for name, value in change.items():
        old = result.get(name)
        both = isinstance(old, dict) and isinstance(value, dict)
        result[name] = _merged(typing.cast(dict, old), value) if both else value
    return result


def as_dict(recipe: Any) -> dict[str, Any]:
    """The complete recipe as plain values, defaults included."""
    return dataclasses.asdict(recipe)


def describe(kind: Any, section: str = "") -> Iterator[tuple[str, str, str]]:
    """(field, default, help) of every field, sections unfolded: what `--help` shows."""
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        if dataclasses.is_dataclass(hint):
            yield from describe(hint, f"{section}{field.name}.")
            continue
        text = field.metadata["help"]
        if field.metadata.get("choices"):
            text += f" ({', '.join(field.metadata['choices'])})"
        yield f"{section}{field.name}", str(field.default), text
