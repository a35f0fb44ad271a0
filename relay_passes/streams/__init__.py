"""Passes that turn a model over a window of time into one that takes only what is new."""
