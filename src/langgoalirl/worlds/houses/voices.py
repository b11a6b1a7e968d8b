"""Annotators: people with their own words, their own eye for detail and their own order of telling.

A voice is data alone; `telling.py` puts its phrases together. In a phrase, {room}, {here}, {thing},
{side}, {nth} and {turn} stand for what a route's facts say.
"""

from __future__ import annotations

from dataclasses import dataclass

Phrases = tuple[str, ...]


@dataclass(frozen=True)
class Voice:
    """How one annotator speaks; the numbers are probabilities of mentioning what there is."""

    name: str
    # what is said
    turns: float
    landmarks: float
    looks: float  # adjectives
    doors: float  # "second door on the left"
    exits: float  # "leave the bedroom" before the next room is named
    goal_first: float  # tells the end before the way
    slips: float  # of a word to be misspelt
    synonym: int  # 0 says the commonest names; others look further down the lists
    # and how
    turn: Phrases
    around: Phrases
    turn_at: Phrases
    leave: Phrases
    enter: Phrases
    door: Phrases
    walk: Phrases
    towards: Phrases
    past: Phrases
    up: Phrases
    down: Phrases
    stop: Phrases
    stop_between: Phrases
    stop_door: Phrases
    stop_room: Phrases
    opening: Phrases
    goal: Phrases  # begins an instruction that tells the end first
    joint: Phrases  # between the parts of a sentence
    sentence: Phrases  # between sentences; those that end in a full stop ask for a capital


TERSE = Voice(
    "terse", turns=0.45, landmarks=0.35, looks=0.35, doors=0.5, exits=0.5, goal_first=0.0,
    slips=0.0, synonym=0,
    turn=("go {turn}", "{turn}", "turn {turn}"),
    around=("turn around", "go back"),
    turn_at=("{turn} at the {thing}", "{turn} by {thing}"),
    leave=("exit {here}", "leave {here}", "out of {here}"),
    enter=("enter {room}", "into {room}", "go to {room}"),
    door=("take {nth} door on {side}, {room}", "{nth} {side} door into {room}"),
    walk=("go straight", "straight", "go ahead"),
    towards=("go to {thing}", "to the {thing}"),
    past=("pass {thing}", "past the {thing}"),
    up=("go upstairs", "up the stairs"),
    down=("go downstairs", "down the stairs"),
    stop=("stop at {thing}", "stop by {thing}", "wait near {thing}"),
    stop_between=("stop by {thing} and {other}", "wait at {thing}, near {other}"),
    stop_door=("stop in door to {room}", "wait at {room} door"),
    stop_room=("stop in {room}", "wait in {room}"),
    opening=("",), goal=("go to {room}",), joint=(", ", " and "), sentence=(". ", ", ", ", "),
)  # fmt: skip

CHATTY = Voice(
    "chatty", turns=0.5, landmarks=0.6, looks=0.6, doors=0.3, exits=0.7, goal_first=0.1,
    slips=0.0, synonym=0,
    turn=("you want to turn {turn}", "make a {turn} turn", "just turn {turn}"),
    around=("turn all the way around", "you need to turn around"),
    turn_at=("make a {turn} at the {thing}", "just by the {thing} you turn {turn}"),
    leave=("walk out of the {here}", "leave the {here}", "come out of the {here}"),
    enter=("walk on into the {room}", "head over into the {room}", "go straight into the {room}"),
    door=("it is the {nth} door on your {side}, the {room}",
          "go in the {nth} door on the {side}, that is the {room}"),
    walk=("keep walking straight", "just keep going", "walk straight ahead for a bit"),
    towards=("head towards the {thing} you see there", "walk up to the {thing}"),
    past=("you pass a {thing} on your {side}", "walk just past the {thing}",
          "keep the {thing} on your {side}"),
    up=("climb up the stairs", "go all the way up the stairs"),
    down=("come down the stairs", "walk all the way down the stairs"),
    stop=("you can stop just next to the {thing}", "wait for me by the {thing}",
          "stop once you are beside the {thing}"),
    stop_between=("stop there between the {thing} and the {other}",
                  "wait by the {thing}, close to the {other}"),
    stop_door=("stop exactly in the doorway to the {room}", "wait there at the door of the {room}"),
    stop_room=("you can stop in the {room}", "stop once you are in the {room}"),
    opening=("okay so ", "", "alright, ", "first "),
    goal=("we are going to the {room}",),
    joint=(" and then ", " and ", ", then "), sentence=(". ", ". Then ", ". After that "),
)  # fmt: skip

LANDMARKS = Voice(
    "landmark-minded", turns=0.25, landmarks=1.0, looks=0.75, doors=0.1, exits=0.2, goal_first=0.1,
    slips=0.0, synonym=1,
    turn=("turn {turn}", "face {turn}"),
    around=("turn around", "turn to what is behind you"),
    turn_at=("turn {turn} at the {thing}", "once you see the {thing}, turn {turn}",
             "before the {thing}, turn {turn}"),
    leave=("leave the {here}", "exit the {here}"),
    enter=("go into the {room}", "enter the {room}"),
    door=("go through the {nth} door on the {side} into the {room}",),
    walk=("walk forward", "continue"),
    towards=("walk towards the {thing}", "go up to the {thing}", "move to the {thing}"),
    past=("walk past the {thing}", "pass the {thing} on the {side}", "go by the {thing}"),
    up=("go up the staircase",), down=("go down the staircase",),
    stop=("stop in front of the {thing}", "stop next to the {thing}", "stop by the {thing}"),
    stop_between=("stop between the {thing} and the {other}",
                  "stop by the {thing} close to the {other}"),
    stop_door=("stop in the doorway of the {room}", "stop at the entrance to the {room}"),
    stop_room=("stop in the {room}",),
    opening=("",), goal=("find the {thing} in the {room}", "look for the {room} with the {thing}"),
    joint=(" and ", ", "), sentence=(". ",),
)  # fmt: skip

TURNS = Voice(
    "turn-minded", turns=0.95, landmarks=0.2, looks=0.2, doors=0.95, exits=0.4, goal_first=0.0,
    slips=0.0, synonym=0,
    turn=("turn {turn}", "take a {turn}", "make a {turn}"),
    around=("turn around", "make a u-turn"),
    turn_at=("turn {turn} at the {thing}", "take a {turn} at the {thing}"),
    leave=("exit the {here}", "go out the door of the {here}"),
    enter=("go through the door", "go through the doorway into the {room}", "enter the {room}"),
    door=("take the {nth} door on the {side}", "enter the {nth} doorway on your {side}",
          "go through the {nth} door on the {side} to the {room}"),
    walk=("go straight", "continue straight", "walk forward"),
    towards=("go straight to the {thing}", "continue straight"),
    past=("go straight past the {thing}", "continue past the {thing}"),
    up=("go up the stairs", "take the stairs up"), down=("go down the stairs",
                                                         "take the stairs down"),
    stop=("stop by the {thing}", "stop near the {thing}"),
    stop_between=("stop by the {thing} and {other}",),
    stop_door=("stop in the doorway", "stop at the door of the {room}"),
    stop_room=("stop inside the {room}", "stop there"),
    opening=("",), goal=("go to the {room}",), joint=(" and ", ", "), sentence=(". ",),
)  # fmt: skip

ROOMS_ONLY = Voice(
    "room-minded", turns=0.15, landmarks=0.15, looks=0.3, doors=0.2, exits=0.8, goal_first=0.5,
    slips=0.0, synonym=1,
    turn=("turn {turn}", "bear {turn}"), around=("turn around",),
    turn_at=("turn {turn} at the {thing}",),
    leave=("leave the {here}", "go out of the {here}"),
    enter=("cross into the {room}", "go through to the {room}", "enter the {room}"),
    door=("take the {nth} door on the {side}, to the {room}",),
    walk=("cross the {here}", "go on through the {here}"),
    towards=("cross the {here} to the {thing}", "go on through the {here}"),
    past=("go past the {thing}",),
    up=("go to the upper floor", "go upstairs"), down=("go to the lower floor", "go downstairs"),
    stop=("stop in the {room} by the {thing}", "in the {room}, wait at the {thing}"),
    stop_between=("stop in the {room} near the {thing} and the {other}",),
    stop_door=("stop where the {room} begins", "stop in the door to the {room}"),
    stop_room=("stop in the {room}", "wait inside the {room}"),
    opening=("from the {here}, ", "", "starting in the {here}, "),
    goal=("go to the {room}, by the {thing}", "get to the {thing} in the {room}"),
    joint=(", ", " and "), sentence=(". ", ", then "),
)  # fmt: skip

STORYTELLER = Voice(
    "storyteller", turns=0.35, landmarks=0.65, looks=0.8, doors=0.3, exits=0.5, goal_first=0.0,
    slips=0.0, synonym=1,
    turn=("turning {turn}, go on", "you turn to the {turn}", "swing {turn}"),
    around=("you turn your back on what is before you", "turning around, go on"),
    turn_at=("at the {thing} the way bends {turn}", "where the {thing} stands, turn {turn}"),
    leave=("step out of the {here}", "leaving the {here}, go on"),
    enter=("you come to the {room}", "step into the {room}", "you find yourself in the {room}"),
    door=("the {nth} door on the {side} leads you into the {room}",
          "choose the {nth} door on the {side}, to the {room}"),
    walk=("stroll on through the {here}", "wander straight on"),
    towards=("make your way to the {thing}", "a {thing} awaits you, go to it"),
    past=("a {thing} goes by on the {side}", "leave the {thing} on your {side}",
          "wander past the {thing}"),
    up=("climb the stairs to the floor above", "the stairs lead you up"),
    down=("the stairs lead you down", "descend the stairs to the floor below"),
    stop=("your journey ends beside the {thing}", "rest next to the {thing}",
          "come to rest at the {thing}"),
    stop_between=("rest between the {thing} and the {other}",
                  "your journey ends at the {thing}, not far from the {other}"),
    stop_door=("pause on the threshold of the {room}", "your journey ends at the {room} door"),
    stop_room=("rest in the {room}", "your journey ends in the {room}"),
    opening=("you begin in the {here}. ", "you are in the {here}. ", ""),
    goal=("the {room} is where you are going",),
    joint=(" and ", ", and ", ", "), sentence=(". ", ". Soon ", ". Then "),
)  # fmt: skip

UNCOMMON = Voice(
    "uncommon words", turns=0.5, landmarks=0.6, looks=0.6, doors=0.5, exits=0.6, goal_first=0.15,
    slips=0.0, synonym=2,
    turn=("veer {turn}", "pivot {turn}", "hang a {turn}"),
    around=("reverse direction", "do an about face"),
    turn_at=("veer {turn} upon reaching the {thing}", "pivot {turn} at the {thing}"),
    leave=("depart the {here}", "vacate the {here}"),
    enter=("proceed into the {room}", "advance to the {room}"),
    door=("proceed via the {nth} door on the {side} into the {room}",),
    walk=("proceed forward", "advance along the {here}"),
    towards=("approach the {thing}", "proceed in the direction of the {thing}"),
    past=("bypass the {thing}", "proceed beyond the {thing}"),
    up=("ascend the steps", "ascend one level"), down=("descend the steps", "descend one level"),
    stop=("halt adjacent to the {thing}", "remain beside the {thing}"),
    stop_between=("halt amid the {thing} and the {other}", "remain by the {thing} and the {other}"),
    stop_door=("halt at the threshold to the {room}", "remain at the entry of the {room}"),
    stop_room=("halt inside the {room}", "remain within the {room}"),
    opening=("", "to commence, "), goal=("your destination is the {room}",),
    joint=(", subsequently ", " and ", ", "), sentence=(". ", "; "),
)  # fmt: skip

HASTY = Voice(
    "hasty", turns=0.45, landmarks=0.6, looks=0.4, doors=0.4, exits=0.5, goal_first=0.05,
    slips=0.07, synonym=1,
    turn=("turn {turn}", "go {turn}"), around=("turn around", "turn back"),
    turn_at=("turn {turn} at {thing}", "turn {turn} near the {thing}"),
    leave=("get out of the {here}", "go out the {here}"),
    enter=("go in the {room}", "go in to the {room}", "walk in {room}"),
    door=("go in {nth} door on {side}", "{nth} door on the {side} to {room}"),
    walk=("keep going", "walk ahead"),
    towards=("go towards {thing}", "walk to the {thing}"),
    past=("go past {thing}", "go past the {thing} thats on {side}"),
    up=("go up stairs", "walk up the stairs"), down=("go down stairs", "walk down the stairs"),
    stop=("stop near the {thing}", "and wait by {thing}", "stop close to the {thing}"),
    stop_between=("stop near {thing} and {other}",),
    stop_door=("stop at the door of {room}", "wait in the {room} doorway"),
    stop_room=("stop in {room}", "wait in the {room}"),
    opening=("",), goal=("your going to the {room}",),
    joint=(" and ", " then "), sentence=(" then ", ". ", " "),
)  # fmt: skip

VOICES = (TERSE, CHATTY, LANDMARKS, TURNS, ROOMS_ONLY, STORYTELLER, UNCOMMON, HASTY)
