"""Step programs, their plans and schedules."""
