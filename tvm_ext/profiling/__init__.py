"""Profiles of packages: executed instructions, estimated cycles, memory traffic and stack of each layer."""
