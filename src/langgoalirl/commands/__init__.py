"""One module per command: `add` declares its options, `run` carries it out."""
