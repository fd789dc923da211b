"""The passes from scheduled form to kernel form that only CPUs need."""
