"""What people call: load a model, compile it, run it."""

from __future__ import annotations

import base64
import json
import os
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from weft.api.tuning import DATABASE, Schedules
from weft.frontends.torch.kinds import SUFFIX as TORCH_SUFFIX
from weft.frontends.torch.kinds import is_torch_model
from weft.graph.dims import given_sizes
from weft.graph.nodes import Module
from weft.graph.passes.infer import BindSizes
from weft.graph.text import to_text
from weft.graph.verify import verify
from weft.ir.node import forget_unused
from weft.ir.passes import Instrument, Verify
from weft.kernels.cache import KernelCache
from weft.pipeline import Options, Report, ScheduleSource, compile_module
from weft.pipeline.specialize import Build, Hot, SpecializingExecutable, specialized
from weft.plugins.plugin import Plugin
from weft.plugins.registry import STOCK, Registry, registry_of
from weft.runtime import Artifact, Executable
from weft.runtime.artifact import is_artifact
from weft.runtime.devices import register as register_device
from weft.support import settings
from weft.support.arguments import FLAG, MAPPING, TEXT, WHOLE, Form, checked, instance, one_or_several, optional
from weft.support.cache import DiskCache
from weft.support.errors import MALFORMED, ArtifactError, InputError, InternalError, TargetError, UserError
from weft.support.files import existing_file
from weft.support.garbage import seldom_collected
from weft.support.interrupts import kept_interrupts
from weft.support.memory import own_memory
from weft.support.progress import progress as progress_bar
from weft.target import Target

if TYPE_CHECKING:
    from weft.tune.database import Database
    from weft.view.dump import Dump

Sizes = Mapping[str, "int | Sequence[int]"]

_FOR_ARTIFACTS = (
    "'weft run', 'weft inspect' and weft.load_executable take compiled files; models are .onnx, .pt2 and .graph files"
)
_TARGET = instance("a target (a text or a weft.Target)", str, Target)
_PLUGINS = Form(
    "a list of weft.Plugin", lambda v: isinstance(v, (list, tuple)) and all(isinstance(p, Plugin) for p in v)
)
_FORMS = {
    "target": _TARGET,
    "threads": optional(WHOLE),
    "shapes": optional(MAPPING),
    "also": one_or_several(_TARGET),
    "options": optional(instance("weft.Options", Options)),
    "precision": optional(TEXT),
    "schedules": optional(
        Form("a source of schedules with a method 'find'", lambda v: callable(getattr(v, "find", None)))
    ),
    "tuning_db": optional(DATABASE),
    "cache": FLAG,
    "progress": FLAG,
    "specialize": optional(MAPPING),
    "specialize_after": optional(WHOLE),
    "plugins": _PLUGINS,
}


@checked("I029", InputError, shapes=optional(MAPPING), name=optional(TEXT), plugins=_PLUGINS)
def load(
    model: Any,
    *,
    shapes: Sizes | None = None,
    name: str | None = None,
    plugins: Sequence[Plugin] = (),
    example_inputs: Any = None,
    dynamic_shapes: Any = None,
) -> Module:
    """The graph of a model. ``model`` is a path to an ``.onnx`` file, its bytes, an ``onnx.ModelProto``, a
    ``torch.export.ExportedProgram`` or a path to its ``.pt2`` file, a ``torch.nn.Module``, a path to a ``.graph`` file
    (the notation of :mod:`weft.graph.text`), or a graph. ``plugins`` may add operators, converters of ONNX nodes and
    front ends for files of other kinds to those of installed plugins.

    ``example_inputs`` and ``dynamic_shapes`` are for a ``torch.nn.Module``: its arguments (a tuple, or a dict by name),
    and which of their sizes are open, as for ``torch.export.export``.

    ``shapes`` fixes open dimensions by name (``{"batch": 8}``) or whole inputs (``{"x": (1, 3, 224, 224)}``). Raises
    ModelError, which lists everything in the model that is not supported, UserError T020 for a name that the model
    does not have, InputError I020 for a value that is not a size.
    """
    if example_inputs is not None or dynamic_shapes is not None:
        from weft.frontends.torch import load as load_torch

        return load_torch(
            model, example_inputs=example_inputs, dynamic_shapes=dynamic_shapes, shapes=shapes, name=name
        )  # fmt: skip
    return _load(model, shapes, name, registry_of(plugins))


def _load(
    model: Any, shapes: Sizes | None, name: str | None, registry: Registry, seed: int | str = 0, mapped: bool = False
) -> Module:
    if isinstance(model, Module):
        return _bound(model, shapes or {})
    if is_torch_model(model):
        return _load_torch(model, shapes, name)
    if isinstance(model, (str, os.PathLike)):
        refuse_artifact(existing_file(model))
    suffix = Path(model).suffix.lower() if isinstance(model, (str, os.PathLike)) else ".onnx"
    if suffix == ".graph":
        return _bound(load_graph(Path(model), registry), shapes or {})
    frontend = registry.frontend(suffix)
    if frontend is not None:
        return _bound(_verified(frontend.load(Path(model)), model), shapes or {})
    if suffix == TORCH_SUFFIX:
        return _load_torch(model, shapes, name)
    if suffix != ".onnx":
        raise UserError(
            f"'{model}' is of no known kind of model",
            code="M002",
            hint="models are read from .onnx and .pt2 files, and programs in Weft's own notation from .graph files; "
            "plugins may read others",
        )
    from weft.frontends.onnx import load as load_onnx

    return load_onnx(model, shapes=shapes, name=name, converters=registry.converters, seed=seed, mapped=mapped)


def _load_torch(model: Any, shapes: Sizes | None, name: str | None) -> Module:
    from weft.frontends.torch import load as load_torch

    return load_torch(model, shapes=shapes, name=name)


def refuse_artifact(path: str | os.PathLike[str]) -> None:
    """Raise UserError M002 for a compiled file, whatever its name: a model is needed."""
    if Path(path).suffix.lower() == ".weft" or is_artifact(path):
        raise UserError(f"'{path}' is compiled already, a model is needed here", code="M002", hint=_FOR_ARTIFACTS)


def _bound(module: Module, shapes: Sizes) -> Module:
    sizes = tuple((name, size) for name, size in given_sizes(shapes).items() if isinstance(size, int))
    if len(sizes) < len(shapes):
        raise UserError("sizes of a graph are fixed by name, one number each", code="I020")
    return BindSizes(sizes).run(module) if sizes else module


def load_graph(path: Path, registry: Registry = STOCK) -> Module:
    """The program in a text file, checked. Large constants come from the ``.npz`` next to it. Raises ParseError."""
    from weft.graph.text import load as load_text

    return _verified(load_text(path, registry.operators), path)


def _verified(module: Module, path: Any) -> Module:
    if "main" not in module.functions:
        raise UserError(f"'{path}' has no function @main", code="M003", hint="a program starts there")
    try:
        verify(module)
    except InternalError as error:  # here the program is the user's, not the compiler's
        raise UserError(f"'{path}': {error.message}", code="M004") from error
    return module


@checked("I029", InputError, **_FORMS)
def compile(
    model: Any,
    target: str | Target = "cpu",
    *,
    threads: int | None = None,
    shapes: Sizes | None = None,
    also: str | Target | Sequence[str | Target] = (),
    options: Options | None = None,
    precision: str | None = None,
    schedules: ScheduleSource | None = None,
    tuning_db: Database | str | os.PathLike[str] | None = None,
    cache: bool = True,
    progress: bool = False,
    specialize: Hot | None = None,
    specialize_after: int | None = None,
    plugins: Sequence[Plugin] = (),
    example_inputs: Any = None,
    dynamic_shapes: Any = None,
) -> Executable:
    """Compile a model (anything :func:`load` takes; a ``torch.nn.Module`` with ``example_inputs``, and
    ``dynamic_shapes`` if some sizes are open) into an executable.

    ``target`` is ``"cpu"`` (the current machine), a named machine or the full text of a target. ``also`` adds code for
    further CPU levels; the best one is selected when an artifact is loaded. ``threads`` defaults to all cores. Compiled
    kernels are cached on disk unless ``cache`` is False. ``progress`` shows a bar on a terminal. ``precision="bf16"``
    stores operands of matrix products and convolutions as bfloat16 (see :class:`Options`, whose field it overrides).
    If the target cannot multiply bfloat16, a RuntimeWarning says that it computes in float32.

    ``plugins`` extend the compiler (see :class:`weft.Plugin`) in addition to those of installed packages;
    ``WEFT_PLUGINS=0`` disables the installed ones.

    ``tuning_db`` is a tuning database (a path, or a :class:`weft.tune.database.Database`): kernels have the schedules
    that were measured to be faster than those of the default rules. Without it, ``WEFT_TUNING_DB`` may name one, or
    the package may have schedules for the machine.
    ``schedules`` is a source of schedules of one's own (:class:`weft.pipeline.ScheduleSource`) instead of a database.

    A model with open sizes runs for all values of them. ``specialize={"batch": [1, 8]}`` also compiles separate code
    for each combination of these sizes (constants are shared, and the sizes of a run decide which code runs).
    ``specialize_after=n`` does so for sizes with which the model has run ``n`` times.

    Raises ModelError for models that are not supported or cannot be specialized (M022), TargetError for unknown
    targets, InputError I022 for an unknown precision, UserError T020 for open sizes that the model does not have,
    InputError I029 for arguments of a wrong type, U020 for ``schedules`` and ``tuning_db`` together, and I021, U002,
    U003 and U004 for a ``tuning_db`` that cannot be read.
    """
    made, _ = compile_with_report(
        _of_module(model, example_inputs, dynamic_shapes),
        target,
        threads=threads,
        shapes=shapes,
        also=also,
        options=options,
        precision=precision,
        schedules=schedules,
        tuning_db=tuning_db,
        cache=cache,
        progress=progress,
        specialize=specialize,
        specialize_after=specialize_after,
        plugins=plugins,
    )
    return made


@checked("I029", InputError, **_FORMS)
def compile_with_report(
    model: Any,
    target: str | Target = "cpu",
    *,
    threads: int | None = None,
    shapes: Sizes | None = None,
    also: str | Target | Sequence[str | Target] = (),
    options: Options | None = None,
    precision: str | None = None,
    schedules: ScheduleSource | None = None,
    tuning_db: Database | str | os.PathLike[str] | None = None,
    cache: bool = True,
    progress: bool = False,
    specialize: Hot | None = None,
    specialize_after: int | None = None,
    plugins: Sequence[Plugin] = (),
) -> tuple[Executable, Report]:
    """Like :func:`compile`, and also returns a report: times, kernels, memory."""
    for plugin in registry_of(plugins).plugins:
        for kind in plugin.devices:  # known to the process: tensors on a device outlive this call, and name its kind
            register_device(kind.kind, kind.open)
    artifact, report, build = _compiled(
        model, target, shapes, also, options, precision, Schedules(schedules, tuning_db, threads), cache, progress,
        specialize, plugins, keep_module=specialize_after is not None,
    )  # fmt: skip
    if specialize_after is not None:
        return SpecializingExecutable(artifact, threads, specialize_after, build), report
    return Executable(artifact, threads), report


@checked("I029", InputError, **_FORMS)
def compile_artifact(
    model: Any,
    target: str | Target = "cpu",
    *,
    shapes: Sizes | None = None,
    also: str | Target | Sequence[str | Target] = (),
    options: Options | None = None,
    precision: str | None = None,
    schedules: ScheduleSource | None = None,
    tuning_db: Database | str | os.PathLike[str] | None = None,
    cache: bool = True,
    progress: bool = False,
    specialize: Hot | None = None,
    plugins: Sequence[Plugin] = (),
    example_inputs: Any = None,
    dynamic_shapes: Any = None,
) -> Artifact:
    """The artifact that :func:`compile` would load, not loaded: to save code for another machine to a file."""
    source, model = Schedules(schedules, tuning_db), _of_module(model, example_inputs, dynamic_shapes)
    return _compiled(model, target, shapes, also, options, precision, source, cache, progress, specialize, plugins)[0]


@checked("I029", InputError, **_FORMS)
def compile_sources(
    model: Any,
    folder: str | os.PathLike[str],
    target: str | Target = "c",
    *,
    shapes: Sizes | None = None,
    options: Options | None = None,
    precision: str | None = None,
    cache: bool = True,
    progress: bool = False,
    plugins: Sequence[Plugin] = (),
) -> list[Path]:
    """Write a model as C sources to ``folder``, which is made: a file for each kernel, headers, the program that calls
    the kernels, its constants, and a README.md that says how to build it. No C compiler is needed here. Returns the
    files.

    ``target`` is of kind ``c``; the other arguments are those of :func:`compile`. Raises TargetError G032 for a target
    of another kind, InputError I030 if a file cannot be written, and the errors of :func:`compile`.
    """
    from weft.backends.c import source_flags
    from weft.view.sources import write_sources

    chosen = registry_of(plugins).target(target)
    if chosen.kind.name != "c":
        raise TargetError(
            f"there are no C sources for the target '{chosen.kind.name}'",
            code="G032",
            hint="target='c', or 'c -mcpu=…'",
        )
    asked = tuple({**dict(chosen.options), "code": "source"}.items())
    artifact = compile_artifact(
        model,
        chosen.replace(options=asked),
        shapes=shapes,
        options=options,
        precision=precision,
        cache=cache,
        progress=progress,
        plugins=plugins,
    )
    try:
        return write_sources(artifact, Path(folder), source_flags(chosen))
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise InputError(f"'{folder}' cannot be written: {reason}", code="I030") from problem


def _of_module(model: Any, inputs: Any, dynamic_shapes: Any) -> Any:
    """The graph of a module that comes with example inputs; other models as they are."""
    if inputs is None and dynamic_shapes is None:
        return model
    return load(model, example_inputs=inputs, dynamic_shapes=dynamic_shapes)


def _compiled(
    model: Any,
    target: str | Target,
    shapes: Sizes | None,
    also: str | Target | Sequence[str | Target],
    options: Options | None,
    precision: str | None,
    schedules: Schedules,
    cache: bool,
    progress: bool,
    specialize: Hot | None,
    plugins: Sequence[Plugin],
    keep_module: bool = False,
) -> tuple[Artifact, Report, Build]:
    """The artifact, the report, and a function that compiles the model for given sizes only. ``keep_module``: that
    function will be called later, when the file of the model may have changed."""
    registry = registry_of(plugins)
    targets = [registry.target(t) for t in (target, *([also] if isinstance(also, (str, Target)) else also))]
    options = options or Options()
    options = options if precision is None else replace(options, precision=precision)
    kernels = KernelCache(kernel_disk_cache() if cache and registry.keeps_kernels else None)
    bar_shown = progress_bar("reading the model", show=None if progress else False)
    with schedules.opened(targets[0]) as source, bar_shown as bar, seldom_collected(), kept_interrupts():
        module = _load(model, shapes, None, registry, options.seed, mapped=not keep_module)
        keep = KeepGraphs()
        with dumping(module) as dump:
            artifact, report = compile_module(
                module,
                targets,
                options=options,
                schedules=source,
                cache=kernels,
                instruments=[*graph_instruments(), keep, *([dump] if dump else [])],
                progress=bar,
                observer=dump,
                registry=registry,
            )
            if dump:
                dump.facts = {"target": " ".join(map(str, targets)), **asdict(report)}
    forget_unused()
    for note in report.notes:
        warnings.warn(note, RuntimeWarning, stacklevel=6)  # where compile was called
    artifact = replace(artifact, metadata={**artifact.metadata, "graphs": keep.packed()})

    def build(sizes: Mapping[str, int]) -> Artifact:
        fixed = BindSizes(tuple(sizes.items())).run(module)
        with schedules.opened(targets[0]) as source:
            made, _ = compile_module(
                fixed, targets, options=options, schedules=source, cache=kernels, registry=registry
            )
        return made

    if specialize:
        artifact = specialized(artifact, specialize, build)
    # Last, because a merge may keep the constants of any of its programs.
    artifact = replace(artifact, constants=tuple(map(own_memory, artifact.constants)))
    return artifact, report, build


def graph_instruments() -> list[Instrument[Module]]:
    """The function to call after each graph pass, by the environment: verify if WEFT_VERIFY is set."""
    return [Verify(verify, to_text)] if settings.verify_passes() else []


@contextmanager
def dumping(module: Module) -> Iterator[Dump | None]:
    """With WEFT_DUMP: write every stage to files, and an index that is written even if the compilation fails."""
    directory = settings.dump_directory()
    if directory is None:
        yield None
        return
    from weft.view.dump import dumping_to

    with dumping_to(directory, str(module.attrs.get("name", "")) or "model") as dump:
        yield dump


class KeepGraphs:
    """Keeps the graph as imported and as fused, so that an artifact can be inspected at every stage."""

    def __init__(self) -> None:
        self._first: Module | None = None
        self._last: Module | None = None

    def before(self, step: Any, program: Module) -> None:
        self._first = self._first or program

    def after(self, step: Any, before: Module, after: Module) -> None:
        self._last = after

    def packed(self) -> str:
        """Both texts, compressed, without large constants: a few kilobytes."""
        texts = {"imported": self._first, "groups": self._last}
        plain = json.dumps({k: to_text(m) for k, m in texts.items() if m is not None})
        return base64.b85encode(zlib.compress(plain.encode())).decode()


MAX_GRAPH_BYTES: Final = 1 << 28
"""Most bytes of the texts of graphs in an artifact. Compressed, a few kilobytes might stand for any number."""


def kept_graphs(artifact: Artifact) -> dict[str, str]:
    """The texts that :class:`KeepGraphs` left in the artifact: ``imported`` and ``groups``; empty if there are none.
    Raises ArtifactError A011 for anything else."""
    packed = artifact.metadata.get("graphs")
    if not isinstance(packed, str):
        return {}
    try:
        unpacked = zlib.decompressobj().decompress(base64.b85decode(packed), MAX_GRAPH_BYTES)
        found: dict[str, str] = json.loads(unpacked)
        texts = {stage: found[stage] for stage in ("imported", "groups")}
        if not all(isinstance(text, str) for text in texts.values()):
            raise ValueError("a graph is no text")
    except (zlib.error, *MALFORMED) as error:
        raise ArtifactError(f"the graphs in the artifact are malformed ({error})", code="A011") from error
    return texts


def kernel_disk_cache() -> DiskCache:
    """The cache of compiled kernels, configured by the environment."""
    return DiskCache.default("kernels")
