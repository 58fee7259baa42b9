"""The parts of MuJoCo's compiled model (mjModel) as parts of a robot description, one file per topic."""
