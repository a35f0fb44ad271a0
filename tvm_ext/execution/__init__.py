"""Packages run: on the host in a process of their own, on a board in QEMU."""
