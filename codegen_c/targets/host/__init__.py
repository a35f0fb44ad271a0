"""The machine at hand, as its compiler sees it."""
