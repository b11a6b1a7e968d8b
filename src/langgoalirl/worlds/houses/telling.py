"""How a voice tells a route: which facts it picks, in which order, with which of its phrases."""

from __future__ import annotations

import re

import numpy as np

from langgoalirl.worlds.houses.facts import Entry, Facts, Leg
from langgoalirl.worlds.houses.layout import Placed, Plan
from langgoalirl.worlds.houses.vocabulary import ROOMS, THINGS
from langgoalirl.worlds.houses.voices import Phrases, Voice

ARTICLE = re.compile(r"\ba(?= (?!u-)[aeiou])")
ORDINALS = ("", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")


def tell(voice: Voice, plan: Plan, facts: Facts, rng: np.random.Generator) -> str:
    """One instruction: true to the facts, though rarely all of them."""
    return _Telling(voice, plan, facts, rng).text()


class _Telling:
    """One voice at one route; remembers what it called a thing so as not to change names midway."""

    def __init__(self, voice: Voice, plan: Plan, facts: Facts, rng: np.random.Generator) -> None:
        self.voice = voice
        self.plan = plan
        self.facts = facts
        self.rng = rng
        self.named: dict[int, str] = {}
        self.mentioned: set[str] = set()

    def text(self) -> str:
        """Opening, legs, stop; or the goal, then the legs."""
        voice, facts = self.voice, self.facts
        parts: list[list[str]] = []
        while not any(parts):  # nobody says nothing at all about the way
            self.mentioned.clear()
            parts = [self._leg(leg, i) for i, leg in enumerate(facts.legs)]
        ending = [self._stop()]
        opening = self._pick(voice.opening, here=self._room(facts.start))
        if self._chance(voice.goal_first) and facts.beside and facts.beyond is None:
            goal = self._pick(
                voice.goal, room=self._room(facts.final), thing=self._thing(facts.beside[0])
            )
            opening, ending = f"{goal}: ", [] if "{thing}" in "".join(voice.goal) else ending
        sentences = [self._join(part) for part in [*parts, ending] if part]
        told = opening + sentences[0]
        for sentence in sentences[1:]:
            told += self._pick(voice.sentence) + sentence
        return self._polish(told)

    # What is said of one leg.

    def _leg(self, leg: Leg, number: int) -> list[str]:
        voice = self.voice
        if leg.climb and "climb" in self.mentioned:
            return []  # both flights of a staircase are one climb
        parts: list[str] = []
        if leg.turn != "straight" and self._chance(voice.turns):
            parts.append(self._turn(leg, number))
        if leg.climb:
            self.mentioned.add("climb")
            return [*parts, self._pick(voice.up if leg.climb > 0 else voice.down)]
        passed = [p for p in leg.passed if p[0].kind not in ("stairs", "stairs down")]
        if passed and self._chance(0.5 * voice.landmarks):
            thing, side = passed[self.rng.integers(len(passed))]
            parts += self._about(voice.past, thing, side=side)
        entries = [e for e in leg.entries if self.plan.rooms[e.room].kind != "stairs"]
        for entry in entries:
            parts += self._entry(entry, last=entry is entries[-1])
        if not entries and not (parts and self._chance(0.6)):
            towards = leg.towards
            if towards is not None and self._chance(voice.landmarks):
                parts += self._about(voice.towards, towards, here=self._room(leg.room))
            elif not parts and self._chance(0.4):
                parts.append(self._pick(voice.walk, here=self._room(leg.room)))
        return parts

    def _turn(self, leg: Leg, number: int) -> str:
        voice = self.voice
        if leg.turn == "around":
            return self._pick(voice.around)
        turn = leg.turn if self._chance(0.6) else leg.turn.removeprefix("slight ")
        if number and leg.at is not None and self._chance(voice.landmarks):
            self.mentioned.add(leg.at.kind)
            return self._pick(voice.turn_at, turn=turn, thing=self._thing(leg.at))
        return self._pick(voice.turn, turn=turn)

    def _entry(self, entry: Entry, *, last: bool) -> list[str]:
        """Out of one room, into the next; passing through a hallway may go without saying."""
        voice = self.voice
        room, here = self._room(entry.room), self._room(entry.origin)
        if entry.nth and self._chance(voice.doors):
            return [self._pick(voice.door, nth=ORDINALS[entry.nth], side=entry.side, room=room)]
        leaving = []
        in_a_room = self.plan.rooms[entry.origin].kind not in ("hallway", "stairs")
        if in_a_room and entry.origin == self.facts.start and self._chance(voice.exits):
            leaving = [self._pick(voice.leave, here=here)]
            if self.plan.rooms[entry.room].kind == "hallway" and self._chance(0.5):
                return leaving
        passing = not last or self.plan.rooms[entry.room].kind == "hallway"
        if passing and self._chance(0.4):
            return leaving
        return [*leaving, self._pick(voice.enter, room=room)]

    def _stop(self) -> str:
        voice, facts = self.voice, self.facts
        if facts.beyond is not None:
            return self._pick(voice.stop_door, room=self._room(facts.beyond))
        room = self._room(facts.final)
        beside = facts.beside
        if not beside or self._chance(0.08):
            return self._pick(voice.stop_room, room=room)
        first = self._thing(beside[0])
        if len(beside) > 1 and self._chance(0.35 * voice.landmarks):
            other = self._thing(beside[1])
            return self._pick(voice.stop_between, thing=first, other=other, room=room)
        return self._pick(voice.stop, thing=first, room=room)

    # Names.

    def _room(self, room: int) -> str:
        return self._name(ROOMS[self.plan.rooms[room].kind].names)

    def _thing(self, thing: Placed) -> str:
        if id(thing) not in self.named:
            name = self._name(THINGS[thing.kind].names)
            look = f"{thing.look} " if self._chance(self.voice.looks) else ""
            self.named[id(thing)] = look + name
        return self.named[id(thing)]

    def _name(self, names: tuple[str, ...]) -> str:
        """Mostly the voice's own word, now and then another."""
        own = min(self.voice.synonym, len(names) - 1)
        return names[own if self._chance(0.8) else self.rng.integers(len(names))]

    def _about(self, phrases: Phrases, thing: Placed, **words: str) -> list[str]:
        """A part about a thing, unless it was spoken of already."""
        if thing.kind in self.mentioned:
            return []
        self.mentioned.add(thing.kind)
        return [self._pick(phrases, thing=self._thing(thing), **words)]

    # Words.

    def _chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def _pick(self, phrases: Phrases, **words: str) -> str:
        return phrases[self.rng.integers(len(phrases))].format(**words)

    def _join(self, parts: list[str]) -> str:
        text = parts[0]
        for part in parts[1:]:
            text += self._pick(self.voice.joint) + part
        return text

    def _polish(self, text: str) -> str:
        """A full stop, capitals after it, and the slips of hasty fingers."""
        words = ARTICLE.sub("an", text).split()
        if self.voice.slips:
            words = [self._slip(word) for word in words]
        for i, word in enumerate(words):
            if i == 0 or words[i - 1].endswith("."):
                words[i] = word[:1].upper() + word[1:]
        return " ".join(words).rstrip(",;:") + "."

    def _slip(self, word: str) -> str:
        if len(word) < 4 or not word.isalpha() or not self._chance(self.voice.slips):
            return word
        i = int(self.rng.integers(1, len(word) - 2))
        return word[:i] + word[i + 1] + word[i] + word[i + 2 :]
