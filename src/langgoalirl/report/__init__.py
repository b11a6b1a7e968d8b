"""Reading run folders and worlds, and drawing them. Nothing else depends on this package."""
