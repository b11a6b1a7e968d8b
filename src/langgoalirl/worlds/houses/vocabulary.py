"""What stands in the houses and what people call it: rooms, things, their looks, their names.

The order of the entries is part of the world: a code vector belongs to a place in these tables.
"""

from __future__ import annotations

from dataclasses import dataclass

COLOURS = tuple(
    "white black grey brown beige red blue green yellow orange purple pink cream teal maroon navy "
    "golden silver turquoise tan".split()
)
LOOKS = {
    "soft": tuple("leather velvet striped floral patterned checkered plush quilted woven".split()),
    "hard": tuple("wooden glass metal marble wicker antique round square carved tall".split()),
    "plain": tuple("modern old shiny small large ornate simple dusty fancy vintage".split()),
}
ADJECTIVES = COLOURS + LOOKS["soft"] + LOOKS["hard"] + LOOKS["plain"]


@dataclass(frozen=True)
class Thing:
    """A kind of object: its names (the commonest first), looks, height and size in metres."""

    names: tuple[str, ...]
    looks: str  # which of LOOKS it may have besides a colour
    height: float
    size: float


def _things(table: str) -> dict[str, Thing]:
    things = {}
    for line in table.strip().splitlines():
        names, looks, height, size = (field.strip() for field in line.split("|"))
        words = tuple(name.strip() for name in names.split(","))
        things[words[0]] = Thing(words, looks, float(height), float(size))
    return things


THINGS = _things("""
    couch, sofa, settee         | soft  | 0.5 | 1.6
    armchair, recliner          | soft  | 0.5 | 1.1
    coffee table                | hard  | 0.4 | 1.0
    television, tv, tv screen   | plain | 1.2 | 1.1
    fireplace, hearth           | plain | 0.8 | 1.3
    bookcase, bookshelf         | hard  | 1.3 | 1.3
    lamp, floor lamp            | plain | 1.4 | 0.8
    rug, carpet                 | soft  | 0.0 | 1.3
    plant, potted plant         | plain | 0.8 | 0.9
    painting, picture           | plain | 1.6 | 0.9
    window                      | plain | 1.5 | 1.2
    curtains, drapes            | soft  | 1.4 | 1.1
    piano                       | hard  | 0.8 | 1.4
    dining table                | hard  | 0.7 | 1.6
    chairs, dining chairs       | hard  | 0.6 | 1.2
    chandelier                  | plain | 2.3 | 0.9
    sideboard, buffet           | hard  | 0.8 | 1.2
    stove, oven, cooker         | plain | 0.8 | 1.1
    fridge, refrigerator        | plain | 1.2 | 1.2
    kitchen island, counter     | hard  | 0.9 | 1.5
    bar stools, stools          | hard  | 0.6 | 0.9
    microwave                   | plain | 1.3 | 0.6
    bed                         | soft  | 0.6 | 1.8
    nightstand, bedside table   | hard  | 0.5 | 0.8
    dresser, chest of drawers   | hard  | 0.8 | 1.1
    wardrobe, armoire           | hard  | 1.3 | 1.3
    mirror                      | hard  | 1.5 | 0.9
    bench, ottoman              | soft  | 0.4 | 0.9
    crib, cot                   | hard  | 0.6 | 1.1
    rocking chair               | hard  | 0.6 | 0.9
    toy box                     | plain | 0.3 | 0.8
    toilet, commode             | plain | 0.5 | 1.0
    bathtub, tub                | plain | 0.5 | 1.4
    shower, shower stall        | plain | 1.4 | 1.2
    sink, basin                 | plain | 0.9 | 0.9
    towel rack                  | plain | 1.4 | 0.7
    hamper, laundry basket      | plain | 0.4 | 0.7
    washing machine, washer     | plain | 0.6 | 1.0
    dryer                       | plain | 0.6 | 1.0
    ironing board               | plain | 0.9 | 0.9
    desk, writing desk          | hard  | 0.8 | 1.3
    office chair, swivel chair  | soft  | 0.6 | 0.9
    computer, monitor           | plain | 1.1 | 0.7
    printer                     | plain | 0.9 | 0.6
    filing cabinet              | hard  | 0.8 | 0.9
    globe                       | plain | 1.1 | 0.6
    ladder                      | hard  | 1.4 | 0.9
    treadmill                   | plain | 0.8 | 1.3
    exercise bike, bicycle      | plain | 0.8 | 1.1
    weights, dumbbells          | plain | 0.4 | 0.9
    punching bag                | soft  | 1.4 | 0.9
    car                         | plain | 0.8 | 2.0
    workbench, tool bench       | hard  | 0.9 | 1.2
    tires                       | plain | 0.4 | 0.9
    shelves, shelving           | hard  | 1.3 | 1.1
    shoe rack                   | hard  | 0.4 | 0.8
    coat rack, coat stand       | hard  | 1.4 | 0.8
    suitcase                    | plain | 0.4 | 0.7
    console table               | hard  | 0.8 | 0.9
    vase, urn                   | plain | 1.0 | 0.6
    clock, grandfather clock    | hard  | 1.4 | 0.8
    statue, sculpture           | plain | 1.2 | 0.8
    pool table, billiard table  | hard  | 0.8 | 1.7
    bar                         | hard  | 1.0 | 1.5
    grill, barbecue             | plain | 0.8 | 0.9
    patio chairs, deck chairs   | hard  | 0.5 | 1.1
    stairs, staircase, steps    | hard  | 1.0 | 1.9
    stairs down                 | hard  | 0.0 | 1.9
    door, doorway               | hard  | 1.2 | 1.2
""")

CENTRAL = {"coffee table", "rug", "dining table", "kitchen island", "pool table", "chandelier"}
"""What stands or hangs in the middle of a room rather than along its walls."""


@dataclass(frozen=True)
class RoomKind:
    """A kind of room: names, the floor area it may have, how often it comes, what is in it."""

    names: tuple[str, ...]
    area: tuple[float, float]
    weight: float
    most: int  # in one house
    things: tuple[str, ...]


def _rooms(table: str) -> dict[str, RoomKind]:
    rooms = {}
    for line in table.strip().splitlines():
        names, low, high, weight, most, things = (field.strip() for field in line.split("|"))
        words = tuple(name.strip() for name in names.split(","))
        rooms[words[0]] = RoomKind(
            words,
            (float(low), float(high)),
            float(weight),
            int(most),
            tuple(thing.strip() for thing in things.split(",")),
        )
        unknown = set(rooms[words[0]].things) - set(THINGS)
        assert not unknown, unknown
    return rooms


# fmt: off
ROOMS = _rooms("""
    hallway, corridor, hall         | 0  | 0  | 0 | 9 | painting, console table, vase, mirror, clock, rug, coat rack, plant, bench, statue, lamp
    stairs, staircase, steps        | 0  | 0  | 0 | 9 | painting, plant, window
    living room, lounge, sitting room | 14 | 99 | 6 | 1 | couch, armchair, coffee table, television, fireplace, bookcase, lamp, rug, plant, painting, window, curtains, piano
    kitchen                         | 8  | 30 | 6 | 1 | stove, fridge, kitchen island, bar stools, microwave, sink, window, plant, clock
    dining room, dining area        | 9  | 30 | 4 | 1 | dining table, chairs, chandelier, sideboard, painting, window, curtains, plant, vase
    bedroom                         | 9  | 30 | 4 | 3 | bed, nightstand, dresser, wardrobe, mirror, bench, lamp, window, curtains, rug, painting, armchair, television
    bathroom, restroom, washroom    | 4  | 14 | 5 | 2 | toilet, bathtub, shower, sink, towel rack, mirror, hamper, window
    office, study                   | 7  | 24 | 3 | 1 | desk, office chair, computer, printer, filing cabinet, bookcase, globe, window, lamp
    library, reading room           | 10 | 40 | 1 | 1 | bookcase, armchair, globe, ladder, lamp, rug, fireplace, desk, painting, window
    laundry room, utility room      | 4  | 12 | 3 | 1 | washing machine, dryer, ironing board, sink, shelves, hamper
    closet, walk-in closet          | 4  | 10 | 2 | 2 | shelves, shoe rack, mirror, suitcase, coat rack, hamper
    gym, exercise room              | 10 | 40 | 2 | 1 | treadmill, exercise bike, weights, punching bag, mirror, television, bench
    nursery, kids room              | 8  | 20 | 2 | 1 | crib, rocking chair, toy box, rug, curtains, dresser, window, lamp
    garage                          | 14 | 50 | 1 | 1 | car, workbench, tires, shelves, ladder, exercise bike, fridge
    game room, games room           | 14 | 50 | 1 | 1 | pool table, bar, bar stools, television, couch, painting, clock, lamp
    balcony, patio, terrace         | 5  | 16 | 1 | 1 | grill, patio chairs, plant, bench, statue, lamp
    entryway, foyer, entrance       | 5  | 16 | 3 | 1 | coat rack, shoe rack, console table, mirror, bench, rug, vase, chandelier, statue
    pantry, storage room            | 4  | 10 | 2 | 1 | shelves, fridge, ladder, microwave, suitcase
""")  # noqa: E501
# fmt: on
