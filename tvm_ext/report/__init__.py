"""report.json: written, read back, shown as tables."""
