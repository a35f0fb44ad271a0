"""Rooms of the command line: options, the values their texts stand for, a run's result file, what is shown."""
