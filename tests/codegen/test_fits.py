"""The polynomials in use are as near to their functions as they claim."""

import mpmath as mp
import pytest

from tests.codegen.fit_polynomials import FITS, error_of, remez


@pytest.mark.parametrize("name", FITS)
def test_coefficients_fit(name: str) -> None:
    with mp.workdps(40):
        assert error_of(FITS[name], 40) <= FITS[name].bound


@pytest.mark.parametrize("name", ["sin32", "tanh32", "log32", "exp64"])
def test_the_fit_gives_the_coefficients_in_use(name: str) -> None:
    with mp.workdps(40):
        found, error = remez(FITS[name], grid=300)
    assert error <= FITS[name].bound
    assert [float(c) for c in found] == pytest.approx(list(FITS[name].used), rel=1e-2)
