"""Schedule primitives, one module per family. Each is *check + rewrite + forward*; see :data:`.registry.PRIMITIVES`."""
