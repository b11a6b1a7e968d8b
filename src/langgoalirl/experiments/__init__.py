"""The paper's tables and figures as a matrix of runs, and what came of them beside its numbers."""
