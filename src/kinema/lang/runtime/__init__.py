"""Memory and execution of plans, through the C interface of `lang/native`."""
