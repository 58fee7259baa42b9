"""Side-by-side benchmarks with other projects; run them from the project folder, they are never installed."""
