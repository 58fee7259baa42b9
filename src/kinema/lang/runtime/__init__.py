"""Memory and execution of plans, behind the C interface of `lang/native`."""
