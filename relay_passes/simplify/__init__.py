"""Passes of phase 1: constants become plain, moves of elements become gathers."""
