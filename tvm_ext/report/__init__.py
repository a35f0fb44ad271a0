"""report.json of a package: writing, reading, and its views as tables and as a page."""
