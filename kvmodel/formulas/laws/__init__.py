"""Probability laws of sizes, pauses and numbers of turns.

The closed forms of reuse, retention and queueing all ask a law the same few questions: how likely is at most
t, what is E[min(X, t)], what are the moments, what is the Laplace transform. A law answers them in closed
form where there is one and by quadrature where there is not (the transform of a lognormal).

Shapes: parameters may be arrays of a study's shape A; arguments carry their own axes in front, (n,) + A.
Units: a law has the unit of its parameters (tokens, seconds); a transform's argument has the inverse unit.
Exact sampling is offered for the simulator, which must share nothing else with the closed forms.

Symbols: X the variable, t >= 0 a level, s a complex frequency with Re s >= 0, z = 1 - e a
generating-function argument.
"""

from kvmodel.formulas.laws.closed import Constant, Exponential, Gamma, Loguniform, Uniform
from kvmodel.formulas.laws.composite import Mixture, Sum
from kvmodel.formulas.laws.empirical import Empirical
from kvmodel.formulas.laws.law import Law
from kvmodel.formulas.laws.tails import Lognormal, Lomax, Weibull
from kvmodel.formulas.laws.turns import FixedTurns, GeometricTurns, TabulatedTurns, Turns

__all__ = [
    "Constant",
    "Empirical",
    "Exponential",
    "FixedTurns",
    "Gamma",
    "GeometricTurns",
    "Law",
    "Lognormal",
    "Loguniform",
    "Lomax",
    "Mixture",
    "Sum",
    "TabulatedTurns",
    "Turns",
    "Uniform",
    "Weibull",
]
