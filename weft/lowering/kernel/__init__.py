"""The passes between scheduled and kernel form, one module each; ``tir_to_kernel`` lists them in order."""
