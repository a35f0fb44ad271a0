"""Programs as plain data: what runs, in order, how it is called, and the same run in numpy."""
