"""Armv8.1-M with the M-profile vector extension, Helium."""
