"""The draft model: an analytic estimate of a kernel's time for many points at once, without building their programs."""
