"""Measuring candidates: in processes of their own, checked against the default schedule, beside the best so far."""
