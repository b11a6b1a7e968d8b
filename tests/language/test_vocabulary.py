"""Words to numbers and back, whatever the words are; vectors from files that may be broken."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from langgoalirl.errors import UserError
from langgoalirl.language.vocabulary import (
    BEGIN,
    END,
    PAD,
    SPECIAL,
    UNKNOWN,
    Vocabulary,
    detokenize,
    read_glove,
    tokenize,
)

WORDS = Vocabulary([*SPECIAL, "go", "left", ".", "the", "don't", ","])
GO, LEFT, STOP, THE, DONT, COMMA = range(4, 10)
ANY_TEXT = st.text(st.characters(), max_size=40)  # half a surrogate pair included
TYPED = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=60)


# Tokens


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Go left.", ["go", "left", "."]),
        ("Don't STOP", ["don't", "stop"]),
        ("Don\u2019t stop", ["don't", "stop"]),
        ("bed/bath, 2nd door...", ["bed", "/", "bath", ",", "2nd", "door", ".", ".", "."]),
        ("'quoted' dogs'", ["'", "quoted", "'", "dogs", "'"]),
        ("a_b  \t\n c", ["a", "b", "c"]),
        ("Übergang naïve", ["übergang", "naïve"]),
        ("<pad> <unk>", ["<", "pad", ">", "<", "unk", ">"]),
        (" \n", []),
    ],
)
def test_tokens(text: str, tokens: list[str]) -> None:
    assert tokenize(text) == tokens


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        ("go left , then stop .", "Go left, then stop."),
        ("stop . don't move ! now ? yes", "Stop. Don't move! Now? Yes"),
        ("the sofa ( red ) waits", "The sofa ( red) waits"),
        ("", ""),
    ],
)
def test_tokens_are_joined_for_reading(tokens: str, text: str) -> None:
    assert detokenize(tokens.split()) == text


@given(ANY_TEXT)
def test_tokens_of_tokens_are_the_same(text: str) -> None:
    tokens = tokenize(text)
    assert tokenize(" ".join(tokens)) == tokens
    assert not set(tokens) & {"", *SPECIAL}


@given(TYPED)
def test_what_was_joined_for_reading_has_the_same_tokens(text: str) -> None:
    assert tokenize(detokenize(tokenize(text))) == tokenize(text)


# Numbers


def test_encoding() -> None:
    numbers = WORDS.encode(["Go left.", "Go right", ""], limit=9)
    assert numbers.tolist() == [
        [GO, LEFT, STOP, END],
        [GO, UNKNOWN, END, PAD],
        [END, PAD, PAD, PAD],
    ]
    assert numbers.dtype == torch.long


def test_the_limit_counts_words_without_the_end() -> None:
    numbers = WORDS.encode(["go left . go left", "go"], limit=2)
    assert numbers.tolist() == [[GO, LEFT, END], [GO, END, PAD]]


def test_no_texts_are_no_rows() -> None:
    assert WORDS.encode([], limit=5).shape[0] == 0
    assert WORDS.decode(WORDS.encode([], limit=5)) == []


def test_decoding_ends_at_the_first_end() -> None:
    rows = [
        [BEGIN, GO, LEFT, STOP, END, THE],
        [GO, COMMA, GO, PAD, PAD, PAD],
        [END, GO, GO, GO, GO, GO],
        [GO, UNKNOWN, DONT, GO, LEFT, STOP],
    ]
    assert WORDS.decode(torch.tensor(rows)) == [
        "Go left.",
        "Go, go",
        "",
        "Go <unk> don't go left.",
    ]


@given(st.lists(ANY_TEXT, min_size=1, max_size=4), st.integers(0, 12), st.integers(1, 2))
@example(["\ud800"], 5, 1)
def test_any_text_has_numbers_that_end(texts: list[str], limit: int, min_count: int) -> None:
    vocabulary = Vocabulary.build(texts, min_count)
    numbers = vocabulary.encode(texts, limit)
    assert int(numbers.max()) < len(vocabulary)
    for row, text in zip(numbers.tolist(), texts, strict=True):
        end = row.index(END)
        assert end == min(limit, len(tokenize(text)))
        assert set(row[end + 1 :]) <= {PAD}
        assert PAD not in row[:end]
        known = [vocabulary.words[i] for i in row[:end] if i != UNKNOWN]
        assert known == [t for t in tokenize(text)[:limit] if t in vocabulary.index]
    assert len(vocabulary.decode(numbers)) == len(texts)


@given(st.lists(TYPED, min_size=1, max_size=4))
def test_known_words_survive_the_way_there_and_back(texts: list[str]) -> None:
    vocabulary = Vocabulary.build(texts, min_count=1)
    again = vocabulary.decode(vocabulary.encode(texts, limit=60))
    assert [tokenize(text) for text in again] == [tokenize(text) for text in texts]


# Vocabularies


def test_rare_words_are_cut_and_common_ones_come_first() -> None:
    texts = ["b b b, a a", "a c d", "d, Go"]  # a 3, b 3, d 2, comma 2, c 1, go 1
    assert Vocabulary.build(texts, 2).words == [*SPECIAL, "a", "b", ",", "d"]
    assert Vocabulary.build(texts, 3).words == [*SPECIAL, "a", "b"]
    assert Vocabulary.build(texts, 4).words == SPECIAL
    assert Vocabulary.build([], 1).words == SPECIAL


def test_the_order_of_texts_does_not_matter() -> None:
    texts = ["go left", "go on", "stop", "turn left"]
    assert Vocabulary.build(texts, 1).words == Vocabulary.build(texts[::-1], 1).words


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("vocabulary") / "words.json"


@settings(deadline=None)
@given(st.lists(ANY_TEXT, max_size=4))
@example(["\ud800"])
def test_what_is_saved_is_loaded_again(file: Path, texts: list[str]) -> None:
    vocabulary = Vocabulary.build(texts, 1)
    vocabulary.save(file)
    assert Vocabulary.load(file).words == vocabulary.words


@pytest.mark.parametrize(
    "content",
    [{"words": SPECIAL}, [*SPECIAL, 5], ["go", "left"], SPECIAL[::-1], [*SPECIAL, "go", "go"], []],
)
def test_what_is_no_vocabulary_is_one_sentence(tmp_path: Path, content: object) -> None:
    file = tmp_path / "words.json"
    file.write_text(json.dumps(content))
    with pytest.raises(UserError, match="train the stage again") as caught:
        Vocabulary.load(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert "\n" not in str(caught.value)


# Vectors

LISTED = ["<pad>", "<unk>", "go", "left", "zebra"]


def glove(folder: Path, rows: NDArray, words: list[str] = LISTED) -> Path:
    (folder / "train_vocab.txt").write_text("\n".join(words) + "\n")
    np.save(folder / "train_glove.npy", rows)
    return folder


@pytest.mark.parametrize("special_rows", [0, 2])
@pytest.mark.parametrize("kind", ["<f4", "<f8", ">f4", "<f2"])
def test_vectors_of_known_words(tmp_path: Path, special_rows: int, kind: str) -> None:
    rows = np.arange(3 * (3 + special_rows), dtype=kind).reshape(-1, 3) - 3 * special_rows
    vectors = read_glove(glove(tmp_path, rows), WORDS)
    assert {word: vector.tolist() for word, vector in vectors.items()} == {
        GO: [0.0, 1.0, 2.0],
        LEFT: [3.0, 4.0, 5.0],
    }
    assert {vector.dtype for vector in vectors.values()} == {torch.float32}


@pytest.mark.parametrize(
    "rows",
    [
        np.zeros((4, 3)),
        np.zeros((6, 3)),
        np.zeros(3),
        np.zeros((3, 3, 3)),
        np.float32(1),
        np.full((3, 3), "go"),
        np.zeros((3, 3), dtype=complex),
        np.zeros((3, 3), dtype=[("x", "f4")]),
        np.full((3, 3), np.nan),
    ],
    ids=str,
)
def test_vectors_that_do_not_fit_are_refused(tmp_path: Path, rows: NDArray) -> None:
    with pytest.raises(UserError, match=r"train_glove\.npy: .*fetch") as caught:
        read_glove(glove(tmp_path, rows), WORDS)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"train_vocab\.txt: no such file"):
        read_glove(tmp_path, WORDS)
    (glove(tmp_path, np.zeros((3, 3))) / "train_glove.npy").unlink()
    with pytest.raises(UserError, match=r"train_glove\.npy: .*fetch"):
        read_glove(tmp_path, WORDS)


class Harmful:
    """What must never be made again from a file."""

    made = False

    def __reduce__(self) -> tuple:
        return (setattr, (Harmful, "made", True))


def test_pickles_are_refused_unopened(tmp_path: Path) -> None:
    folder = glove(tmp_path, np.zeros((3, 3)))
    pickled = np.array([[Harmful()]] * 3, dtype=object)
    np.save(folder / "train_glove.npy", pickled, allow_pickle=True)
    with pytest.raises(UserError, match=r"train_glove\.npy"):
        read_glove(folder, WORDS)
    (folder / "train_glove.npy").write_bytes(pickled.dumps())
    with pytest.raises(UserError, match=r"train_glove\.npy"):
        read_glove(folder, WORDS)
    assert not Harmful.made


def saved(rows: NDArray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, rows)
    return stream.getvalue()


def zipped() -> bytes:
    stream = io.BytesIO()
    np.savez(stream, rows=np.zeros((3, 3)))
    return stream.getvalue()


WHOLE = saved(np.ones((3, 3), dtype=np.float32))


@settings(max_examples=80, deadline=None)
@given(st.integers(0, len(WHOLE) - 1), st.binary(max_size=3), st.booleans())
@example(0, b"", True)
@example(0, zipped(), True)
@example(0, WHOLE.replace(b"(3, 3)", b"(3, 3000000000000)"), True)
@example(0, WHOLE.replace(b"(3, 3)", b"(3, -1)"), True)
def test_damaged_vectors_are_refused_or_of_three_words(
    file: Path, start: int, damage: bytes, cut: bool
) -> None:
    glove(file.parent, np.zeros((3, 3)))
    rest = b"" if cut else WHOLE[start + len(damage) :]
    (file.parent / "train_glove.npy").write_bytes(WHOLE[:start] + damage + rest)
    try:
        vectors = read_glove(file.parent, WORDS)
    except UserError as error:
        said = str(error)
    else:
        assert vectors.keys() == {GO, LEFT}
        assert all(vector.isfinite().all() for vector in vectors.values())
        return
    assert "train_glove.npy: " in said
    assert "\n" not in said


def test_the_published_vectors(r2r_dir: Path) -> None:
    words = Vocabulary([*SPECIAL, "the", "stairs", "nosuchword"])
    vectors = read_glove(r2r_dir / "glove", words)
    assert vectors.keys() == {4, 5}
    the, stairs = vectors[4], vectors[5]
    assert the.shape == (300,)
    assert not the.equal(stairs)
