"""The results of compilations as numbers, to compare two versions of the compiler without measuring times.

    python -m benchmarks.snapshot before.json          # in one checkout
    python -m benchmarks.snapshot after.json           # in another
    python -m benchmarks.snapshot --compare before.json after.json

For each model: how many kernels and calls there are, the bytes of the arena, a hash of each kernel's machine code and a
hash of the results for seeded inputs. Equal hashes of all kernels mean equal speed of all kernels. Models whose files
are missing are left out, with a line that says so.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
import models_zoo as zoo

SHARED = (*zoo.SHARED, "basic_pitch_nmp", "dtln_model_1", "dtln_model_2", "silero_vad", "tract_byte_sb_bidi_lstm")
SIZES = {"batch": 2, "sequence": 9}


def models() -> Iterator[tuple[str, Callable[[], Path], dict[str, Any]]]:
    """Name, the function that builds the file, and arguments of ``weft.compile``."""
    for name in zoo.LIGHT:
        yield name, lambda n=name: zoo.light(n), {}
    for name in zoo.TRANSFORMERS:
        yield name, lambda n=name: zoo.transformer(n), {}
        yield f"{name}-dynamic", lambda n=name: zoo.transformer(n, "tiny", "dynamic"), {}
    for name in SHARED:
        yield name, lambda n=name: zoo.shared(n), {}
    for name in ("resnet50", "squeezenet"):
        yield f"{name}-bf16", lambda n=name: zoo.light(n), {"precision": "bf16"}
        for target in ("x86-64-v3", "sapphire-rapids", "graviton3"):
            yield f"{name}-{target}", lambda n=name: zoo.light(n), {"target": target}
    yield "bert-sapphire-rapids", lambda: zoo.transformer("bert"), {"target": "sapphire-rapids", "precision": "bf16"}


def snapshot(path: Path, arguments: dict[str, Any]) -> dict[str, Any]:
    """The numbers of one model. Models compiled for a named target are not run."""
    import weft

    artifact = weft.compile_artifact(str(path), **arguments)
    found: dict[str, Any] = {
        "kernels": {
            kernel.name: [hashlib.blake2b(v.data, digest_size=8).hexdigest() for v in code.variants]
            for kernel, code in zip(artifact.program.kernels, artifact.codes, strict=True)
        },
        "instructions": len(artifact.program.instructions),
        "arena_bytes": artifact.metadata["arena_bytes"],
        "largest_live_set": artifact.metadata["largest_live_set"],
        "constant_bytes": artifact.constant_bytes,
    }
    if "target" not in arguments:
        found["results"] = results(artifact, path)
    return found


def seeded_inputs(path: Path) -> dict[str, np.ndarray]:
    """Inputs of a model for seed 0; open dimensions without a name count as 1."""
    import onnx

    model = onnx.load(path)
    for port in model.graph.input:
        for i, dim in enumerate(port.type.tensor_type.shape.dim):
            if not dim.dim_value and not dim.dim_param:
                dim.dim_param = f"{port.name}_{i}"
    inputs = zoo.random_inputs(model, 0, SIZES)
    if "sr" in inputs:  # the sampling rate of silero_vad
        inputs = {"input": np.random.default_rng(0).standard_normal((1, 576)).astype(np.float32),
                  "state": np.zeros((2, 1, 128), np.float32), "sr": np.array(16000, np.int64)}  # fmt: skip
    return inputs


def results(artifact: Any, path: Path) -> list[str]:
    """A hash of each result for seeded inputs, on two threads."""
    from weft.runtime import Executable

    made = Executable(artifact, 2).run(seeded_inputs(path))
    return [hashlib.blake2b(np.ascontiguousarray(y).tobytes(), digest_size=8).hexdigest() for y in made.values()]


def compare(before: dict[str, Any], after: dict[str, Any]) -> int:
    """Print the differences; returns the number of models that differ."""
    different = 0
    for name in sorted({*before, *after}):
        if name not in before or name not in after:
            print(f"{name}: only {'after' if name in after else 'before'}")
            continue
        old, new = before[name], after[name]
        notes = [f"{k} {old.get(k)} -> {new.get(k)}" for k in old if k != "kernels" and old[k] != new.get(k)]
        if kernels := _changed(old.get("kernels", {}), new.get("kernels", {})):
            notes.append(kernels)
        different += bool(notes)
        if notes:
            print(f"{name}: " + "; ".join(notes))
    print(f"{different} of {len({*before, *after})} models differ")
    return different


def _changed(old: dict[str, Any], new: dict[str, Any]) -> str:
    changed = sorted(k for k in {*old, *new} if old.get(k) != new.get(k))
    return f"{len(changed)} of {len({*old, *new})} kernels: {', '.join(changed[:4])}" if changed else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--compare", action="store_true", help="compare two files instead of writing one")
    parser.add_argument("--only", default="", help="only models whose name has this in it")
    options = parser.parse_args()
    if options.compare:
        before, after = (json.loads(p.read_text()) for p in options.files)
        sys.exit(bool(compare(before, after)))
    found: dict[str, Any] = {}
    for name, build, arguments in models():
        if options.only not in name:
            continue
        try:
            found[name] = snapshot(build(), arguments)
        except zoo.Unavailable as why:
            print(f"{name}: left out, {why}", file=sys.stderr)
            continue
        except Exception as error:  # one failing model must not hide the results of the others
            found[name] = {"error": f"{type(error).__name__}: {error}"}
            print(f"{name}: {found[name]['error']}", file=sys.stderr)
        options.files[0].write_text(json.dumps(found, indent=1))
    print(f"{len(found)} models in {options.files[0]}")


if __name__ == "__main__":
    main()
