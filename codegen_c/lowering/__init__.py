"""Region functions -> programs."""
