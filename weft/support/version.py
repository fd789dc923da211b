"""The version of Weft, in a module that every package may import."""

VERSION = "0.1.0"
