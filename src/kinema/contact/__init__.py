"""Contact: collision detection, contact solvers, and compliant contact of links and particles."""
