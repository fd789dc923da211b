"""Ways to look at a compilation: the files that ``WEFT_DUMP`` writes, and their index page."""
