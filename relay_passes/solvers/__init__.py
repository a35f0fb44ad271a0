"""Searches over plain graphs and numbers, by problem; none knows tvm."""
