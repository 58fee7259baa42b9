"""Scene description: shapes, bodies, joints, robots, soft matter, and the scene that holds them."""
