"""Run programs and functions in separate processes, with limits."""
