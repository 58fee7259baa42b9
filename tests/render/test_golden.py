"""Images are those that were kept by `golden.py`."""

from __future__ import annotations

import numpy as np
from tests.render import golden


def test_images_are_those_that_were_kept():
    """Float64 on any CPU; what was kept is rounded to float32, 6e-8 of numbers up to 3: 1e-6 is room for both."""
    kept, found = dict(np.load(golden.FILE)), golden.images()
    assert set(kept) == set(found), "python -m tests.render.golden"
    for name, image in found.items():
        np.testing.assert_allclose(image, kept[name], rtol=0, atol=1e-6, err_msg=name)


def test_what_was_kept_shows_something():
    for name, image in np.load(golden.FILE).items():
        covered = (image[..., 3] > 0.5).mean()
        assert 0.1 < covered < 0.95, name
        assert image[..., :3].std() > 0.05, name
