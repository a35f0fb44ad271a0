"""Failures that the fuzzer found, one small script each, kept so that they stay mended.

A script builds the failing file by code, `specimen()`, and says in `EXPECTED` which end is right: a word of
`benchmarks/fuzzing/outcome.py`, such as `compiled and agrees` or `refused`. Its docstring says what went wrong and why;
`NEEDS`, where it is there, names programs without which it is skipped.
`python benchmarks/fuzz.py --seed N --case I --shrink NAME` writes the first form of one, from a case that fails.
`test_regressions.py` runs all of them, each in a process of its own.
"""
