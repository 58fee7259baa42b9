"""Side-by-side measurements with other projects; run from the project folder, never installed."""
