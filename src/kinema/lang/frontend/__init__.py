"""Python source to the intermediate form, or an error that says what to write."""
