"""``python -m weft``: the command line."""

from weft.cli.main import main

main()
