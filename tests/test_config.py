"""Recipes: what overrides what, and what is said of fields that are wrong."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from langgoalirl.config import as_dict, describe, from_dict, load, option
from langgoalirl.errors import UserError
from langgoalirl.recipe import Pretraining, WorldChoice, open_world


@dataclass(frozen=True)
class Oven:
    degrees: float = option(180.0, "heat")
    fan: bool = option(False, "let air circulate")
    mode: str = option("top", "where heat comes from", ("top", "bottom", "both"))


@dataclass(frozen=True)
class Cake:
    """A recipe of the other kind."""

    eggs: int = option(3, "how many eggs")
    name: str = option("", "on the icing")
    minutes: int | None = option(None, "baking time, if it is known")
    oven: Oven = option(Oven, "the oven")

    def __post_init__(self) -> None:
        if self.eggs < 0:
            raise ValueError("'eggs' cannot be negative.")


def cake(*overrides: str) -> Cake:
    return load(Cake, None, overrides)


def refusal(*overrides: str) -> str:
    """What is said of overrides that are wrong."""
    with pytest.raises(UserError) as caught:
        cake(*overrides)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def written(folder: Path, text: str) -> Path:
    file = folder / "cake.toml"
    file.write_text(text)
    return file


# What overrides what


def test_defaults() -> None:
    assert cake() == Cake(3, "", None, Oven(180.0, False, "top"))


def test_overrides_win_over_the_file_and_the_file_over_defaults(tmp_path: Path) -> None:
    file = written(tmp_path, 'eggs = 4\nname = "Ada"\n[oven]\nfan = true\ndegrees = 200\n')
    assert load(Cake, file) == Cake(4, "Ada", None, Oven(200.0, True, "top"))
    changed = load(Cake, file, ["eggs=5", "oven.mode=both", "eggs=6"])  # the last one counts
    assert changed == Cake(6, "Ada", None, Oven(200.0, True, "both"))


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("eggs=7", Cake(eggs=7)),
        (" eggs = 7 ", Cake(eggs=7)),
        ("minutes=40", Cake(minutes=40)),
        ("name=Ada Lovelace", Cake(name="Ada Lovelace")),
        ('name="7"', Cake(name="7")),
        ("name=a=b", Cake(name="a=b")),
        ("name=", Cake(name="")),
        ("oven.degrees=1e2", Cake(oven=Oven(degrees=100.0))),
        ("oven.degrees=100", Cake(oven=Oven(degrees=100.0))),
        ("oven.fan=true", Cake(oven=Oven(fan=True))),
        ('oven={fan=true, mode="both"}', Cake(oven=Oven(fan=True, mode="both"))),
    ],
)
def test_overrides(override: str, expected: Cake) -> None:
    assert cake(override) == expected


def test_whole_numbers_become_floats_where_floats_are_wanted() -> None:
    assert type(cake("oven.degrees=100").oven.degrees) is float


# What is refused


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("eggs", "'eggs': an override is written field=value, for example seed=1."),
        ("egs=3", "unknown field 'egs'. Did you mean 'eggs'?"),
        ("oven.degres=3", "unknown field 'oven.degres'. Did you mean 'degrees'?"),
        ("zzz=1", "unknown field 'zzz'. Known: eggs, name, minutes, oven."),
        ("=3", "unknown field ''"),
        ("oven..fan=true", "unknown field 'oven.'"),
        ("eggs.more=1", "'eggs' must be a whole number"),
        ("oven=1", "'oven' is a section; write [oven] above its fields."),
        ("eggs=3.0", "'eggs' must be a whole number, not 3.0; how many eggs."),
        ("eggs=true", "'eggs' must be a whole number, not True"),
        ("eggs=three", "'eggs' must be a whole number, not 'three'"),
        ("eggs=", "'eggs' must be a whole number, not ''"),
        ("minutes=long", "'minutes' must be a whole number, not 'long'"),
        ("name=7", "'name' must be text in quotes, not 7; on the icing."),
        ("name=[1]", "'name' must be text in quotes, not [1]"),
        ("oven.degrees=hot", "'oven.degrees' must be a number, not 'hot'"),
        ("oven.degrees=true", "'oven.degrees' must be a number, not True"),
        ("oven.degrees=nan", "'oven.degrees' must be a number"),
        ("oven.degrees=-inf", "'oven.degrees' must be a number"),
        ("oven.degrees=1" + 400 * "0", "'oven.degrees' must be a number"),
        ("oven.fan=1", "'oven.fan' must be true or false, not 1"),
        ("oven.fan=True", "'oven.fan' must be true or false, not 'True'"),
        ("oven.mode=botom", "'oven.mode' cannot be 'botom'. Did you mean 'bottom'?"),
        ("oven.mode=gas", "'oven.mode' cannot be 'gas'. Known: top, bottom, both."),
        ("eggs=-1", "'eggs' cannot be negative."),
        ("eggs=" + 5000 * "9", "'eggs' must be a whole number"),
        ("eggs=" + 5000 * "[", "'eggs' must be a whole number"),
        ("a\nb=1", "unknown field 'a\\nb'"),
    ],
    ids=lambda value: value[:30],
)
def test_what_is_wrong_is_said(override: str, said: str) -> None:
    assert said in refusal(override)


@pytest.mark.parametrize("override", ["egs=3", "eggs=x", "oven.mode=gas", "eggs=-1"])
def test_the_override_that_is_wrong_is_quoted(override: str) -> None:
    assert refusal("eggs=5", override).startswith(f"'{override}': ")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("eggs = ", "not valid TOML ("),
        ("eggs = 1\neggs = 2", "not valid TOML ("),
        ("[oven]\ndegres = 3", "unknown field 'oven.degres'. Did you mean 'degrees'?"),
        ("oven = 3", "'oven' is a section; write [oven] above its fields."),
        ("eggs = 1979-05-27", "'eggs' must be a whole number"),
        ("eggs = " + "9" * 5000, "not valid TOML ("),
        ("eggs = " + "[" * 5000, "not valid TOML ("),
    ],
    ids=lambda value: value[:30],
)
def test_a_file_that_is_wrong_is_named(tmp_path: Path, text: str, said: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(UserError, match=re.escape(f"{file}: {said}")) as caught:
        load(Cake, file)
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.toml: no such file"):
        load(Cake, tmp_path / "none.toml")
    written(tmp_path, "").write_bytes(b"name = '\xff'")
    with pytest.raises(UserError, match="not UTF-8 text"):
        load(Cake, tmp_path / "cake.toml")


# Anything at all

NAMES = st.sampled_from(["eggs", "name", "minutes", "oven", "oven.degrees", "oven.mode", "oven.x"])
VALUES = st.sampled_from(
    ["1", "-0", "1e9", "0x1f", "[]", "{}", "{a=1}", "[[1]]", "1979-05-27", "07:32:00", '"""', "'"]
)


@given(st.text(max_size=30) | st.tuples(NAMES, VALUES | st.text(max_size=8)).map("=".join))
@example("eggs=" + "{a=" * 2000)
@example("oven.degrees=" + "9" * 4000)
@example("." * 3000 + "=1")
def test_any_override_is_taken_or_refused(text: str) -> None:
    try:
        recipe = cake(text)
    except UserError as error:
        said = str(error)
    else:
        assert from_dict(Cake, as_dict(recipe), "again") == recipe
        assert math.isfinite(recipe.oven.degrees)
        return
    assert "\n" not in said


PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
ANY_VALUES = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["eggs", "oven", "fan", "degrees", "x"]), inner)
    ),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(["eggs", "name", "minutes", "oven", "x"]), ANY_VALUES))
def test_any_values_are_taken_or_refused(values: dict[str, Any]) -> None:
    try:
        recipe = from_dict(Cake, values, "here")
    except UserError as error:
        said = str(error)
    else:
        assert all(
            as_dict(recipe)[name] == value for name, value in values.items() if name != "oven"
        )
        return
    assert said.startswith("here: ")


# The real recipe


def test_the_complete_recipe_is_a_recipe() -> None:
    recipe = load(Pretraining, None, ["seed=4", "world.name=r2r", "bc.learning_rate=1"])
    assert (recipe.seed, recipe.world.name, recipe.bc.learning_rate) == (4, "r2r", 1.0)
    assert from_dict(Pretraining, as_dict(recipe), "again") == recipe


def leaves(kind: Any, section: str = "") -> list[str]:
    """The names of all fields that are not sections."""
    found = []
    for field in fields(kind):
        default = getattr(kind(), field.name)
        inner = leaves(type(default), f"{section}{field.name}.") if is_dataclass(default) else []
        found += inner or [section + field.name]
    return found


@pytest.mark.parametrize("kind", [Cake, Pretraining])
def test_every_field_has_its_line_of_help(kind: Any) -> None:
    rows = list(describe(kind))
    assert [name for name, _, _ in rows] == leaves(kind)
    assert all(text.strip() for _, _, text in rows)


def test_help_lists_choices_and_defaults() -> None:
    assert ("oven.mode", "top", "where heat comes from (top, bottom, both)") in describe(Cake)
    assert ("eggs", "3", "how many eggs") in describe(Cake)


def test_the_recipes_that_come_with_the_project() -> None:
    files = sorted((Path(__file__).parents[1] / "recipes").rglob("pretrain*.toml"))
    assert files
    for file in files:
        assert isinstance(load(Pretraining, file), Pretraining)


@pytest.mark.parametrize("device", ["gpu", "", "cuda:99"])
def test_a_device_that_is_not_there_is_one_sentence(device: str) -> None:
    with pytest.raises(UserError, match=f"^device: '{device}' is not to be had here"):
        open_world(WorldChoice(), device)
