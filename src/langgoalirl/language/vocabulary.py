"""Words and numbers: a tokeniser, a vocabulary with a frequency cut, and GloVe rows for it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from langgoalirl.errors import UserError
from langgoalirl.files import read_json, read_text, write_json

PAD, UNKNOWN, BEGIN, END = range(4)
SPECIAL = ["<pad>", "<unk>", "<bos>", "<eos>"]

_TOKEN = re.compile(r"[^\W_]+(?:'[^\W_]+)*|[^\w\s\ud800-\udfff]")
_SPACE_BEFORE = re.compile(r" (?=[.,;:!?)'])")


def tokenize(text: str) -> list[str]:
    """Lower-case words (don't stays one) and single punctuation marks.

    Halves of surrogate pairs, which no file could hold, are passed over.
    """
    return _TOKEN.findall(text.lower().replace("’", "'"))


def detokenize(tokens: Sequence[str]) -> str:
    """Words joined for reading: no space before punctuation, sentences with a capital."""
    text = _SPACE_BEFORE.sub("", " ".join(tokens))
    return re.sub(r"(^|[.!?] )(\w)", lambda match: match[1] + match[2].upper(), text)


class Vocabulary:
    """Words with a number each. The first four are padding, unknown, begin and end."""

    def __init__(self, words: Sequence[str]) -> None:
        if list(words[: len(SPECIAL)]) != SPECIAL or len(set(words)) < len(words):
            raise ValueError("a vocabulary starts with the special words and names each word once")
        self.words = list(words)
        self.index = {word: i for i, word in enumerate(self.words)}

    def __len__(self) -> int:
        return len(self.words)

    @classmethod
    def build(cls, texts: Iterable[str], min_count: int) -> Vocabulary:
        """Every word that occurs at least `min_count` times, commonest first."""
        counts = Counter(token for text in texts for token in tokenize(text))
        kept = sorted((-n, word) for word, n in counts.items() if n >= min_count)
        return cls(SPECIAL + [word for _, word in kept])

    def encode(self, texts: Sequence[str], limit: int) -> Tensor:
        """[n, L] word numbers, at most `limit` and then END, padded with PAD."""
        rows = [
            [self.index.get(token, UNKNOWN) for token in tokenize(text)[:limit]] + [END]
            for text in texts
        ]
        numbers = np.full((len(rows), max(map(len, rows), default=1)), PAD)
        for row, line in zip(numbers, rows, strict=True):
            row[: len(line)] = line
        return torch.from_numpy(numbers)

    def decode(self, numbers: Tensor) -> list[str]:
        """One text per row, up to its END."""
        texts = []
        for row in numbers.tolist():
            row = row[: row.index(END)] if END in row else row
            texts.append(detokenize([self.words[i] for i in row if i not in (PAD, BEGIN)]))
        return texts

    def save(self, path: Path) -> None:
        """Write the words as JSON."""
        write_json(path, self.words, indent=None)

    @classmethod
    def load(cls, path: Path) -> Vocabulary:
        """Read the words that `save` wrote."""
        words = read_json(path)
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise UserError(f"{path}: a vocabulary is a list of words; train the stage again.")
        try:
            return cls(words)
        except ValueError as error:
            raise UserError(f"{path}: {error}; train the stage again.") from None


def read_glove(folder: Path, vocabulary: Vocabulary) -> dict[int, Tensor]:
    """GloVe vectors of the vocabulary's words, from train_vocab.txt and train_glove.npy.

    The files hold one word per line and one row per word, the special words excepted.
    """
    listed = [line.strip() for line in read_text(folder / "train_vocab.txt").splitlines()]
    words = [word for word in listed if word and not word.startswith("<")]
    file = folder / "train_glove.npy"
    rows = _read_vectors(file)
    if rows.ndim != 2 or len(rows) not in (len(words), len(listed)):
        raise UserError(
            f"{file}: {rows.shape} does not fit the {len(words)} words of train_vocab.txt; "
            "fetch both files again."
        )
    known = listed if len(rows) == len(listed) else words
    vectors = torch.from_numpy(rows)
    return {
        vocabulary.index[word]: vectors[i]
        for i, word in enumerate(known)
        if word in vocabulary.index and not word.startswith("<")
    }


def _read_vectors(file: Path) -> NDArray[np.float32]:
    """The finite numbers of an .npy file."""
    try:
        with open(file, "rb") as stream, np.errstate(over="ignore"):
            # Not np.load, which opens zip archives too.
            rows = np.lib.format.read_array(stream, allow_pickle=False)
            numbers = rows.astype(np.float32, order="C", casting="same_kind")
    except Exception:  # numpy reports damage by almost any of them
        raise UserError(f"{file}: no readable array of vectors; fetch the file again.") from None
    if not np.isfinite(numbers).all():
        raise UserError(f"{file}: holds vectors that are not finite; fetch the file again.")
    return numbers
