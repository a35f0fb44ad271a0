"""Hexagon with HVX, vectors of 128 bytes."""
