"""Forces of matter: elastic solids; more kinds of matter are files of this stage."""
