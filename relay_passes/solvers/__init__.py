"""Searches over plain graphs and numbers, in a folder for each problem. None of them imports tvm."""
