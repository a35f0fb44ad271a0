"""Results computed again instead of kept, within a budget of live bytes."""
