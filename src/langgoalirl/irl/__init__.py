"""Adversarial inverse reinforcement learning with language goals; knows no concrete world."""
