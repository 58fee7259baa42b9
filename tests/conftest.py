"""Shared set-up. A test's folder says what kind of test it is, and is its marker: `pytest -m gradients`.

unit           one module, no physics
gradients      derivatives against finite differences, torch and the dot-product test
render         images against a plain rasteriser, hand-computed pixels and stored pictures
verification   closed forms, conservation laws, orders of convergence
cross          against other engines
fuzz           random kernels and damaged input
examples       the code of README, docs/ and examples/ runs
architecture   imports, names, commands
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
KINDS = ("unit", "gradients", "render", "verification", "cross", "fuzz", "examples", "architecture")

# Kernels compiled by tests are kept between runs, apart from the user's own.
os.environ.setdefault("KINEMA_CACHE", str(TESTS.parent / "build" / "test-cache"))
# Where several processes share the tests, threads of torch that wait actively would take the others' time.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_configure(config: pytest.Config) -> None:
    for kind in KINDS:
        config.addinivalue_line("markers", f"{kind}: tests in tests/{kind}")
    config.addinivalue_line("markers", "slow: takes minutes, needs tools that few have; see make slow")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        kind = item.path.relative_to(TESTS).parts[0]
        if kind not in KINDS:
            raise pytest.UsageError(f"{item.path}: tests belong in one of tests/{{{','.join(KINDS)}}}")
        item.add_marker(kind)
