"""Generated houses with the shape of Room-to-Room: the world that needs no download."""

from langgoalirl.worlds.houses.layout import Door, Placed, Plan, Room
from langgoalirl.worlds.houses.world import Houses

__all__ = ["Door", "Houses", "Placed", "Plan", "Room"]
