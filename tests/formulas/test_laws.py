"""Laws of sizes, pauses and turns. Expected numbers: scipy.stats and scipy.integrate, or algebra."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from kvmodel.formulas.laws import (
    Constant,
    Empirical,
    Exponential,
    FixedTurns,
    Gamma,
    GeometricTurns,
    Lognormal,
    Loguniform,
    Lomax,
    Mixture,
    Sum,
    TabulatedTurns,
    Uniform,
    Weibull,
)

SMOOTH = {
    "exponential": (Exponential(3.0), stats.expon(scale=3.0)),
    "lognormal": (Lognormal(2.0, 1.0), stats.lognorm(1.0, scale=2.0)),
    "lognormal wide": (Lognormal(2.0, 2.5), stats.lognorm(2.5, scale=2.0)),
    "lognormal narrow": (Lognormal(2.0, 0.1), stats.lognorm(0.1, scale=2.0)),
    "uniform": (Uniform(1.0, 4.0), stats.uniform(1.0, 3.0)),
    "loguniform": (Loguniform(1.0, 4.0), stats.loguniform(1.0, 4.0)),
    "gamma": (Gamma(0.7, 3.0), stats.gamma(0.7, scale=3.0)),
    "weibull": (Weibull(0.6, 3.0), stats.weibull_min(0.6, scale=3.0)),
    "lomax": (Lomax(2.5, 3.0), stats.lomax(2.5, scale=3.0)),
}
MIXTURE = Mixture((3.0, 1.0), (Exponential(1.0), Lognormal(20.0, 1.5)))
ALL = [pair[0] for pair in SMOOTH.values()] + [MIXTURE, Empirical((1.0, 2.0, 5.0, 40.0))]
positive = st.floats(1e-3, 1e4)


@pytest.mark.parametrize("name", SMOOTH)
def test_moments_and_distribution_equal_scipy(name):
    law, other = SMOOTH[name]
    t = np.geomspace(0.01, 100.0, 13)
    assert np.allclose(law.cdf(t), other.cdf(t), atol=1e-12)
    assert np.allclose(law.survival(t), other.sf(t), atol=1e-12)
    assert law.mean == pytest.approx(other.mean(), rel=1e-12)
    assert law.second_moment == pytest.approx(other.moment(2), rel=1e-9)
    assert np.allclose(law.quantile(np.array([0.1, 0.5, 0.99])), other.ppf([0.1, 0.5, 0.99]), rtol=1e-12)


@pytest.mark.parametrize("name", SMOOTH)
def test_restricted_mean_is_the_integral_of_survival(name):
    law, other = SMOOTH[name]
    for t in (0.3, 2.5, 40.0):
        expected = integrate.quad(other.sf, 0.0, t, points=[1.0, 2.0] if t > 2 else None, epsabs=1e-11)[0]
        assert law.restricted_mean(t) == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("s", [1e-6 * (5 + 30j), 0.01 + 0j, 0.5 + 3j, 2 + 40j, 5 + 300j])
def test_transform_equals_numerical_integration(name, s):
    """Integral over the quantile on a path fine enough for the oscillation; s spans nothing to hundreds of
    turns."""
    law, other = SMOOTH[name]
    # z runs over standard normal scores, which resolve both tails of every law here
    z = np.linspace(-8.0, 12.0, 200_001)
    weight = np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi)
    x = other.isf(stats.norm.sf(z)) if "lognormal" not in name else other.median() * np.exp(other.args[0] * z)
    expected = np.trapezoid(weight * -np.expm1(-s * np.where(np.isfinite(x), x, 0.0)), z)
    assert abs(law.laplace_deficit(s) - expected) < 1e-4 * abs(expected) + 2e-10
    assert law.laplace(s) == 1.0 - law.laplace_deficit(s)


@given(st.sampled_from(ALL), positive, positive)
def test_laws_of_every_law(law, t, u):
    low, high = min(t, u), max(t, u)
    assert 0.0 <= law.cdf(low) <= law.cdf(high) <= 1.0
    assert law.restricted_mean(low) <= law.restricted_mean(high) * (1 + 1e-9) + 1e-12
    assert law.restricted_mean(high) <= min(high, law.mean) * (1 + 1e-9)
    assert law.restricted_mean(high) - law.restricted_mean(low) <= (high - low) * law.survival(low) + 1e-7 * high


@given(st.sampled_from(ALL), st.floats(0.001, 0.999))
def test_quantile_inverts_the_distribution(law, p):
    assert law.cdf(law.quantile(p)) == pytest.approx(p, abs=1e-9)


@given(st.floats(0.1, 1e4), st.floats(1.0, 50.0))
def test_lognormal_from_what_people_quote(median, ratio):
    law = Lognormal.from_median_p90(median, median * ratio)
    assert law.quantile(0.9) == pytest.approx(median * ratio, rel=1e-9)
    by_cv = Lognormal.from_mean_cv(median, ratio)
    assert by_cv.mean == pytest.approx(median, rel=1e-9)
    assert np.sqrt(by_cv.variance) / by_cv.mean == pytest.approx(ratio, rel=1e-9)


@given(st.floats(0.1, 1e4), st.floats(1.001, 2.25))
def test_lognormal_from_mean_and_p90(mean, ratio):
    law = Lognormal.from_mean_p90(mean, mean * ratio)
    assert law.mean == pytest.approx(mean, rel=1e-9)
    assert law.quantile(0.9) == pytest.approx(mean * ratio, rel=1e-9)


def test_constant_is_a_step():
    law = Constant(2.0)
    assert list(law.cdf([1.9, 2.0, 2.1])) == [0.0, 1.0, 1.0]
    assert list(law.restricted_mean(np.array([1.0, 3.0]))) == [1.0, 2.0]
    assert law.laplace(1.0 + 2.0j) == pytest.approx(np.exp(-2.0 - 4.0j))


def test_lomax_without_moments_says_infinite():
    assert Lomax(0.9, 1.0).mean == np.inf
    assert Lomax(1.5, 1.0).second_moment == np.inf
    assert Lomax(1.0, 2.0).restricted_mean(2.0) == pytest.approx(2.0 * np.log(2.0))


def test_sum_multiplies_transforms_and_adds_variances():
    total = Sum((Constant(3.0), Exponential(2.0)))
    s = 0.3 + 1.0j
    assert total.laplace(s) == pytest.approx(np.exp(-3.0 * s) / (1.0 + 2.0 * s))
    assert (total.mean, total.variance) == (5.0, pytest.approx(4.0))


def test_quadrature_nodes_carry_the_mean():
    points, weights = Gamma(2.0, 3.0).nodes(40)
    assert weights.sum() == pytest.approx(1.0)
    assert (points * weights).sum() == pytest.approx(6.0, rel=1e-3)


@pytest.mark.parametrize(
    "turns",
    [GeometricTurns(4.0), FixedTurns(7), TabulatedTurns([0.2, 0.0, 0.5, 0.3])],
    ids=lambda t: type(t).__name__,
)
def test_turns_agree_with_their_own_series(turns):
    """Series over survival: sum_j P(K > j+1) z^j, factorial moments, generating function."""
    j = np.arange(400)
    beyond = turns.survival(j + 1)
    for e in (1e-9, 0.3, 0.9 + 0.8j, 1.0):
        z = 1.0 - e
        assert turns.continuation(e) == pytest.approx((beyond * z**j).sum(), rel=1e-7)
    chance = np.concatenate([[1.0], beyond[:-1]]) - beyond
    falling = [j, j * (j - 1), j * (j - 1) * (j - 2)]
    assert np.allclose(turns.factorial_moments, [(chance * f).sum() for f in falling], rtol=1e-9)
    assert turns.mean == pytest.approx((chance * (j + 1)).sum())
    assert turns.generating_function(0.4) == pytest.approx((chance * 0.4 ** (j + 1)).sum())


@pytest.mark.parametrize(
    "law", [*ALL, Constant(3.0), Sum((Constant(1.0), Exponential(2.0)))], ids=lambda x: type(x).__name__
)
def test_samples_have_the_moments(law):
    drawn = law.sample(np.random.default_rng(1), 200_000)
    error = drawn.std() / np.sqrt(len(drawn))
    assert drawn.mean() == pytest.approx(law.mean, abs=5 * error + 0.05 * law.mean * (law.variance > 1e3) + 1e-12)


def test_arrays_equal_scalars():
    median, sigma, t = np.array([1.0, 5.0, 9.0]), np.array([[0.5], [2.0]]), np.array([0.5, 4.0])
    many = Lognormal(median, sigma)
    s = (t * (1 + 2j))[:, None, None]
    for i in range(2):
        for j in range(3):
            one = Lognormal(median[j], sigma[i, 0])
            assert np.allclose(many.laplace_deficit(s)[:, i, j], one.laplace_deficit(s[:, 0, 0]), rtol=1e-12)
            assert np.allclose(many.restricted_mean(t[:, None, None])[:, i, j], one.restricted_mean(t), rtol=1e-12)


def test_empirical_is_a_mixture_of_uniforms():
    """Knots 1, 2, 5: half uniform on [1, 2], half on [2, 5]; equal neighbours are an atom."""
    law, other = Empirical((1.0, 2.0, 5.0)), Mixture((0.5, 0.5), (Uniform(1.0, 2.0), Uniform(2.0, 5.0)))
    t, s = np.linspace(0.0, 6.0, 25), np.array([1e-7 + 1e-6j, 0.3 + 2.0j, 4.0 + 90.0j])
    assert np.allclose(law.cdf(t), other.cdf(t)) and np.allclose(law.restricted_mean(t), other.restricted_mean(t))
    assert np.allclose(law.laplace_deficit(s), other.laplace_deficit(s), rtol=1e-6)
    assert (law.mean, law.second_moment) == (pytest.approx(2.5), pytest.approx(other.second_moment))
    atom = Empirical((3.0, 3.0, 4.0))
    assert list(atom.cdf(np.array([2.9, 3.0]))) == [0.0, 0.5]


def test_empirical_law_of_data_keeps_the_mean():
    values = np.random.default_rng(1).lognormal(3.0, 1.0, 5_000)
    law = Empirical.of(values)
    assert law.mean == pytest.approx(values.mean())
    assert law.quantile(0.5) == pytest.approx(np.median(values), rel=1e-9)


def test_empirical_arrays_equal_scalars():
    knots = np.array([[1.0, 2.0], [3.0, 2.0], [7.0, 9.0]])
    t, s = np.array([[2.0, 2.5], [6.0, 1.0]]), np.array([[0.1 + 1.0j, 0.2 + 2.0j]])
    law = Empirical(knots)
    for k in range(2):
        one = Empirical(knots[:, k])
        assert np.allclose(law.cdf(t)[:, k], one.cdf(t[:, k]))
        assert np.allclose(law.restricted_mean(t)[:, k], one.restricted_mean(t[:, k]))
        assert np.allclose(law.quantile(np.array([[0.3], [0.8]]))[:, k], one.quantile(np.array([0.3, 0.8])))
        assert np.allclose(law.laplace_deficit(s)[:, k], one.laplace_deficit(s[:, k]))
