"""Phase 4 where a platform has several processors: operators placed on them, layers split among them."""
