"""Build a package: from a model and a platform to files, and what firmware for a board needs."""
