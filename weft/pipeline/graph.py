"""The passes over a graph, in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weft.cost.chains import ChainMachine
from weft.graph.nodes import Module
from weft.graph.passes.chain import JoinChains
from weft.graph.passes.cse import CommonSubexpressions
from weft.graph.passes.dead_code import DeadCode
from weft.graph.passes.fold_constants import FoldConstants
from weft.graph.passes.fuse import Fuse
from weft.graph.passes.hoist_sizes import HoistSizes
from weft.graph.passes.inline import Inline
from weft.graph.passes.known_sizes import KnownSizes
from weft.graph.passes.layout import SelectLayouts
from weft.graph.passes.layout_problem import LayoutDecider
from weft.graph.passes.merge import MergeProducts
from weft.graph.passes.place_parts import PlaceParts, nothing_writes_rows
from weft.graph.passes.precision import LowerPrecision
from weft.graph.passes.requirements import RecordRequirements
from weft.graph.passes.rewrite import Rewrite
from weft.graph.passes.sink_views import SinkViews
from weft.graph.passes.uniform import MakeUniformConstants
from weft.ir.passes import Instrument, Pass, run_passes
from weft.lowering.graph_to_chain import chain_of
from weft.lowering.graph_to_te import fusion_kind, reduces_rows, writes_elements
from weft.ops.catalogue import op
from weft.ops.rules import SIMPLIFY_RULES
from weft.ops.rules.movement import WIDE_RULES
from weft.ops.rules.pointwise import POINTWISE_RULES
from weft.ops.rules.transposed import TRANSPOSED_RULES
from weft.ops.rules.winograd import winograd_rules
from weft.pipeline.options import Options
from weft.plugins.registry import STOCK, Registry
from weft.support.dtypes import DType
from weft.target import Target

LAYOUT_CONVERSION: Final = op("layout_transform")
"""The operator that converts layouts."""
BFLOAT16_TILE = 32
"""Number of adjacent bfloat16 elements in a row of a matrix tile."""


def graph_passes(
    target: Target,
    options: Options,
    registry: Registry = STOCK,
    layouts: LayoutDecider | None = None,
    marked: bool = False,
) -> tuple[Pass[Module], ...]:
    """The graph passes, in order, with those of plugins at the places that they name. ``layouts`` decides about layouts
    instead of estimates, ``marked`` names the calls that it decides about (:func:`weft.graph.passes.layout.mark`)."""
    lanes, rates, cpu = target.cpu.lanes(32), target.cpu.rates, target.cpu
    machine = ChainMachine(rates, lanes, cpu.l2, cpu.l3, cpu.cores)
    clean: tuple[Pass[Module], ...] = (
        FoldConstants(),
        HoistSizes(op("maximum")),
        KnownSizes(),
        Rewrite(SIMPLIFY_RULES),
        FoldConstants(),
        CommonSubexpressions(),
        SinkViews(op("reshape")),
        DeadCode(),
    )
    winograd = (
        (FoldConstants(), Rewrite(winograd_rules(options.tiles, rates, dict(options.winograd_tiles)), name="winograd"))
        if options.tiles
        else ()
    )
    blocked = (
        Rewrite(TRANSPOSED_RULES, name="transposed"),
        SelectLayouts(
            lanes,
            LAYOUT_CONVERSION,
            tile=BFLOAT16_TILE if target.tile_unit("bfloat16") else 0,
            rates=rates,
            decider=layouts,
            context=_after_layouts(options),
            marked=marked,
        ),
        *winograd,
        Rewrite(POINTWISE_RULES, name="pointwise"),
        *clean,
    )
    laid_out = blocked if options.layouts and lanes > 1 else ()
    halved = (LowerPrecision(DType("bfloat16"), op("cast")), *clean) if options.precision_on(target) == "bf16" else ()
    merged = (MergeProducts(op("split"), rates=rates),) if options.merge else ()
    record = RecordRequirements()
    return (
        Inline(),
        *registry.passes("imported"),
        record,
        *clean,
        *registry.passes("simplified"),
        *merged,
        *halved,
        *laid_out,
        MakeUniformConstants(op("full")),
        Rewrite(WIDE_RULES, name="wide"),
        *registry.passes("before-fusion"),
        record,
        Fuse(fusion_kind, max_ops=options.max_ops),
        *((JoinChains(fusion_kind, reduces_rows, chain_of, machine),) if options.max_ops > 1 else ()),
        *registry.passes("fused"),
        PlaceParts(writes_rows=writes_elements if target.host is None else nothing_writes_rows),
    )


def optimize(
    module: Module,
    target: Target,
    options: Options | None = None,
    instruments: Sequence[Instrument[Module]] = (),
    registry: Registry = STOCK,
    layouts: LayoutDecider | None = None,
    marked: bool = False,
) -> Module:
    """The module with every operator call inside a fused group; ``layouts`` and ``marked`` are those of
    :func:`graph_passes`."""
    return run_passes(graph_passes(target, options or Options(), registry, layouts, marked), module, instruments)


def _after_layouts(options: Options) -> str:
    """The options that decide what becomes of a graph after its layouts are chosen."""
    tiles = ",".join(map(str, options.tiles))
    forced = ",".join(f"{name}={tile}" for name, tile in options.winograd_tiles)
    return f"winograd {tiles} {forced} max_ops {options.max_ops}"
