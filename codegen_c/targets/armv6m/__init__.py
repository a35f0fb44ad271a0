"""Armv6-M: Cortex-M0 and M0+."""
