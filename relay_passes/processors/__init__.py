"""Phase 4 for platforms with several processors: operators are placed on them, and layers are split among them."""
