"""Transcendental functions as vector code.

TVM lowers exp, erf, tanh and others to one call of the C library per element, even inside a vectorised loop. This
package replaces the calls by polynomials that stay in vector registers: `formulas` has the polynomials,
`expression_builder` builds an expression, `call_replacement` finds and replaces the calls in lowered functions.
"""
