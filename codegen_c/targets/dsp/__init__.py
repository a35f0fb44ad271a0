"""Armv7E-M and Armv8-M with the DSP extension: pairs of 16-bit numbers in a register."""
