"""The limit of RAM with which a build takes the fastest plan, usually whole layers."""

NO_SHORTAGE = 1 << 40
"""Bytes. Without any limit a build may take a smaller plan that costs almost no time."""
