"""What things are called: names of objects as words, and the rooms that they speak for."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

SYNONYMS = {
    variant: word
    for word, variants in {
        "alarm": "detector extinguisher firealarm sprinkler",
        "arch": "archway arc",
        "basket": "hamper",
        "bathtub": "jacuzzi tub",
        "bed": "bedpost comforter headboard mattress",
        "bookshelf": "bookcase",
        "chair": "highchair seat seating",
        "clothes": "bathrobe clothe clothing coat dress hanger hat robe shirt shoe",
        "computer": "keyboard laptop monitor printer",
        "couch": "chaise recliner sofa sofachair",
        "counter": "backsplash countertop tabletop",
        "curtain": "blind drape shade valance valence",
        "decoration": "decor decorative knickknack ornament trinket",
        "door": "doorframe doorknob",
        "doorway": "entry entryway",
        "dresser": "chest drawer",
        "exercise": "bike excercise fitness gym rowing treadmill weight",
        "faucet": "tap",
        "lamp": "lampshade",
        "light": "lighting sconce",
        "nightstand": "bedside nighttable",
        "ottoman": "footrest footstool pouffe",
        "picture": "art artwork frame mask painting photo photoframe portrait poster",
        "pillar": "column pedestal pole post",
        "pillow": "cushion",
        "pipe": "duct",
        "plant": "bush flower flowerpot hedge pot potted shrubbery vase",
        "railing": "banister bannister fence fencing handrail rail",
        "refrigerator": "freezer fridge",
        "rug": "carpet doormat mat runner",
        "shelf": "shelving",
        "sink": "basin washbasin",
        "stair": "staircase stairframe stairway step",
        "statue": "bust figure sculpture showpiece",
        "stove": "cooker hood microwave oven range stovetop",
        "table": "sidetable",
        "telephone": "phone",
        "toilet": "bidet commode urinal",
        "trash": "bin garbage trashcan",
        "tv": "projector television",
        "wardrobe": "armoire closet",
        "washer": "dryer laundry washing",
        "window": "skylight windowframe windowsill",
    }.items()
    for variant in variants.split()
}
"""Words that people and boxes use for one thing, or for things of one kind."""

MEANINGLESS = frozenset(
    "a air an and at back behind beside bottom can case center fire fixture for handle head holder "
    "in item knob machine miscellaneou object of on or other otherroom outside panel reflection "
    "rod room round set side small smoke stand stuff support the to top under unknown unkown w "
    "wash water with wooden".split()
)

ROOMS: dict[str, dict[str, float]] = {
    "bedroom": {"bed": 1, "nightstand": 1, "dresser": 0.5, "pillow": 0.2},
    "bathroom": {
        **{"toilet": 1, "bathtub": 1, "shower": 1, "bath": 1, "bathroom": 1, "soap": 1},
        **{"toiletry": 1, "sink": 0.5, "towel": 0.5, "faucet": 0.3},
    },
    "kitchen": {
        **{"kitchen": 1, "stove": 1, "refrigerator": 1, "dishwasher": 1, "island": 1},
        **{"toaster": 1, "counter": 0.3},
    },
    "dining room": {"dining": 1, "placesetting": 1, "placemat": 1, "chandelier": 0.3},
    "living room": {
        **{"couch": 1, "coffee": 0.7, "fireplace": 0.6, "armchair": 0.5, "tv": 0.5},
        **{"ottoman": 0.4},
    },
    "office": {"desk": 1, "computer": 1, "office": 1, "whiteboard": 1, "telephone": 0.3},
    "staircase": {"stair": 1, "railing": 1, "landing": 1},
    "laundry": {"washer": 1},
    "gym": {"exercise": 1, "ball": 0.3},
    "closet": {"wardrobe": 1, "clothes": 1},
    "hallway": {"doorway": 1, "arch": 1, "door": 0.5, "bench": 0.4, "picture": 0.15},
    "outdoors": {"tree": 1, "grass": 1, "fountain": 1, "grill": 1, "patio": 1, "umbrella": 0.5},
    "hall": {"pew": 1, "podium": 1, "stage": 1, "theater": 1, "row": 1},
    "garage": {"garage": 1, "car": 1, "tool": 1, "ladder": 1},
}
"""How strongly a thing speaks for a kind of room."""


def words_of(name: str) -> list[str]:
    """The words in a name like 'plant#pot', each once: singular, one spelling for one thing."""
    words = (_singular(word) for word in re.findall(r"[a-z]+", name.lower()))
    known = (SYNONYMS.get(word, word) for word in words)
    return [word for word in dict.fromkeys(known) if word not in MEANINGLESS]


def _singular(word: str) -> str:
    if word == "clothes":
        return word
    if word.endswith("ves"):
        return word[:-3] + "f"
    if word.endswith(("sses", "shes", "ches", "xes")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def common_words(names: Iterable[str], count: int) -> list[str]:
    """At most `count` words of the names: the commonest first, ties in alphabetical order."""
    tally = Counter(word for name in names for word in words_of(name))
    return sorted(tally, key=lambda word: (-tally[word], word))[:count]


def multi_hot(names: list[str], vocabulary: list[str], width: int) -> NDArray[np.float32]:
    """[names, width] which of the vocabulary's words are in each name."""
    column = {word: i for i, word in enumerate(vocabulary)}
    hot = np.zeros((len(names), width), dtype=np.float32)
    for row, name in enumerate(names):
        hot[row, [column[word] for word in words_of(name) if word in column]] = 1
    return hot


def room_evidence(names: list[str]) -> NDArray[np.float32]:
    """[names, rooms] how strongly each name speaks for each kind of room."""
    evidence = np.zeros((len(names), len(ROOMS)), dtype=np.float32)
    for row, name in enumerate(names):
        words = words_of(name)
        evidence[row] = [sum(room.get(word, 0) for word in words) for room in ROOMS.values()]
    return evidence
