"""Worlds as tensors: navigation graphs, made-up houses, Room-to-Room."""
