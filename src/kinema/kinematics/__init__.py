"""Where things are and how fast they move: trees of links."""
