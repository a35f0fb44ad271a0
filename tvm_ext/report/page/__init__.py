"""report.html: one page with pictures, which needs no other file and no network."""
