"""What every importer needs, whatever the format: problems of a model, sizes, ranges of values, decision trees."""
