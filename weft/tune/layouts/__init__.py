"""The joint search for the layouts of a model: kernels of several layouts are measured, and the assignment of layouts
to the whole graph is solved again with their times.

The idea is that of Liu et al., "Optimizing CNN Model Inference on CPUs", USENIX ATC 2019.
"""
