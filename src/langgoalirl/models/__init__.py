"""The paper's networks, one module each; none of them knows a concrete world."""
