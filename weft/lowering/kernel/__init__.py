"""The passes from scheduled form to kernel form, one module each; ``tir_to_kernel`` lists them in order."""
