"""Transcendental functions as vector code.

TVM lowers exp, erf, tanh and the like to one call of the C library per element, also inside a vectorised loop. This
package replaces the calls by polynomials that stay in vector registers: `lanes` builds an expression, `formulas` says
what is evaluated, `calls` finds the calls in lowered functions.
"""
