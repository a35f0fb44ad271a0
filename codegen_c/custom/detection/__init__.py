"""What stands behind a network that detects objects."""
