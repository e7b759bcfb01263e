"""Colours of all figures: those of Okabe and Ito (2008).

Colour-blind people can tell them apart.
"""

__all__ = ["BLUE", "GREEN", "GREY", "ORANGE", "PALETTE", "PURPLE"]

BLUE, ORANGE, GREEN, PURPLE, GREY = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#999999",
)
PALETTE = (BLUE, ORANGE, GREEN, PURPLE)
