"""Comparison of a package's outputs with the results of reference runtimes, end to end and step by step."""
