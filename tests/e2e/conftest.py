"""Markers of the end-to-end tests."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes minutes; leave out with -m 'not slow'")
