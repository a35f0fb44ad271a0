"""Memory planning: lifetimes, offsets, and a validator that shares no code with either."""
