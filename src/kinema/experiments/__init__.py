"""Experiments: every table and figure that Kinema reproduces, one file each; `kinema run NAME` runs one.

`registry.py` lists them. `case.py` holds what an experiment is made of; `runner.py` runs its cases, in processes or on
Ray.
"""
