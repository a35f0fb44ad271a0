"""Passes that turn a model over a window of time into a model that takes only new frames."""
