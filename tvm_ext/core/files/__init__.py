"""Read files within limits, and replace outputs as a whole."""
