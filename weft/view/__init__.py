"""Views of a compilation: the files that ``WEFT_DUMP`` writes, their index page, and statistics of assembly."""
