"""Every test of this folder starts from an empty trace tree."""

import pytest

from tests.frontend.recorder.counting import forget_everything


@pytest.fixture(autouse=True)
def empty_tree():
    forget_everything()
    yield
    forget_everything()
