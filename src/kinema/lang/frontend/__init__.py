"""Translates Python source to the intermediate form, or raises an error that says what to write instead."""
