"""Results of a package's functions beside 0, as its header defines them.

A file without imports: the child process that loads a library needs them before anything else.
"""

NOT_RESET, NOT_READY = -1, -2
"""Of a run: nobody has set its states; its window over time is not full yet."""

MISALIGNED = -3
"""Of a run: the caller's block of memory is not aligned."""

FULL, EMPTY = -3, -4
"""Of a pipeline: it takes no input before outputs are taken; it has no output under way."""
