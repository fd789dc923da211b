"""Code for importers of all formats: problems of a model, sizes, ranges of values, decision trees."""
