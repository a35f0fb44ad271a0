"""Operators that put elements elsewhere, or weigh a few of them."""
