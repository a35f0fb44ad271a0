"""report.html: one self-contained page with pictures, which needs no other file and no network."""
