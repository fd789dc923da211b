"""Tuning: search for schedules by measuring them."""
