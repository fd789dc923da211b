"""The version of Weft, for whoever stands below the package's front door."""

VERSION = "0.1.0"
