"""Contact: penalty forces of particles against shapes."""
