"""Files read with limits, outputs replaced whole."""
