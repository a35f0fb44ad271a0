"""Order operators for the lowest peak of live bytes."""
