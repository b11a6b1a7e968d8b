"""Learn a policy and a reward function from demonstrations annotated in plain language."""

__version__ = "0.1.0"
