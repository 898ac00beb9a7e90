"""Exponential and logarithm of complex numbers in single precision, several times faster than numpy's own.

numpy vectorises the real functions of single precision but not the complex ones. What is close to one is kept as its
deficit from one, so that high powers of it stay right.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["exponential", "exponential_and_deficit", "logarithm", "narrow"]

Array = NDArray[Any]


def narrow(z: Array) -> Array:
    """The same numbers in single precision."""
    return np.asarray(z).astype(np.complex64 if np.iscomplexobj(z) else np.float32)


def exponential(z: Array) -> Array:
    """exp(z) of complex64 z."""
    size, result = np.exp(z.real), np.empty(z.shape, np.complex64)
    np.multiply(size, np.cos(z.imag), out=result.real)
    np.multiply(size, np.sin(z.imag), out=result.imag)
    return result


def exponential_and_deficit(z: Array) -> tuple[Array, Array]:
    """exp(z) and 1 - exp(z) of complex64 z, the deficit accurate where it is small: exp(x) - 1 and 1 - cos y =
    2 sin^2(y/2) do not cancel."""
    half = 0.5 * z.imag
    sine, cosine = np.sin(half), np.cos(half)
    bent = 2 * sine * sine
    value, deficit = np.empty(z.shape, np.complex64), np.empty(z.shape, np.complex64)
    np.multiply(np.exp(z.real), 1 - bent, out=value.real)
    np.multiply(np.exp(z.real), 2 * sine * cosine, out=value.imag)
    np.subtract(bent, np.expm1(z.real) * (1 - bent), out=deficit.real)
    np.negative(value.imag, out=deficit.imag)
    return value, deficit


def logarithm(z: Array, deficit: Array) -> Array:
    """log(z) of complex64 z, principal branch; deficit = 1 - z, which decides where z is close to one."""
    close = np.abs(deficit.real) + np.abs(deficit.imag) < 0.5
    growth = deficit.real * (deficit.real - 2) + np.square(deficit.imag)
    size = np.where(close, 1, np.square(z.real) + np.square(z.imag))
    result = np.empty(z.shape, np.complex64)
    result.real = 0.5 * (np.log1p(np.where(close, growth, 0)) + np.log(size))
    result.imag = np.arctan2(np.where(close, -deficit.imag, z.imag), z.real)
    return result
