"""Counts of n-grams."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np

from weft.frontends.common.problems import Malformed, Unsupported
from weft.frontends.onnx.converters.numbers import Traced, constant, operand
from weft.frontends.onnx.node import Node, Result
from weft.frontends.onnx.tensors import Array
from weft.support.dtypes import FLOAT32
from weft.support.words import counted as counted_words

MAX_COLUMNS = 100_000
"""Most n-grams that are counted."""


def _tf_idf(node: Node) -> Result:
    """TfIdfVectorizer: each n-gram of the pool is compared at every position and distance."""
    x = operand(node, 0)
    words = node.texts("pool_strings", ())
    if words:  # the numbers of words in place of words; -1 for those that no n-gram has
        x = x.call("text_lookup", keys=words)
    rows = x if len(x.shape) == 2 else x.reshape(1, -1)
    length = rows.shape[1]
    if not isinstance(length, int):
        raise Unsupported("n-grams of sequences of symbolic length are not supported")
    numbers = node.integers("pool_int64s", ()) if not words else [words.index(w) for w in words]
    pool, counts = np.array(numbers, np.int64), list(node.integers("ngram_counts", ()))
    low, high = node.integer("min_gram_length"), node.integer("max_gram_length")
    places, number = np.array(node.integers("ngram_indexes", ()), np.int64), 0
    columns: dict[int, list[Traced]] = {}
    for size, (start, end) in enumerate(zip(counts, [*counts[1:], len(pool)], strict=True), 1):
        for gram in pool[start:end].reshape(-1, size) if end > start else ():
            if low <= size <= high:
                furthest = 1 if size == 1 else min(node.integer("max_skip_count") + 1, (length - 1) // (size - 1))
                steps = range(1, furthest + 1) if length else ()
                found = [_occurrences(rows, gram, step) for step in steps]
                columns.setdefault(int(places[number]), []).extend(found)
            number += 1
    zero = constant(node, 0.0).expand(rows.shape[0], 1)
    width = int(places.max(initial=-1)) + 1
    if len(places) < number or not 0 < width <= MAX_COLUMNS or places.min() < 0:
        raise Malformed(
            f"its indexes of {counted_words(number, 'n-gram')} do not fit, or are not below {MAX_COLUMNS:,}"
        )
    made = [reduce(lambda a, b: a + b, columns.get(i) or [zero]) for i in range(width)]
    counted = made[0].call("concat", *made[1:], axis=1)
    mode, weights = node.text("mode"), node.reals("weights", ())
    if mode == "IDF":
        counted = (counted > 0.0).to(FLOAT32)
    if weights and mode in ("IDF", "TFIDF"):
        counted = counted * constant(node, weights)
    return (counted if len(x.shape) == 2 else counted.reshape(width)).x


def _occurrences(rows: Traced, gram: Array, step: int) -> Traced:
    """The number of occurrences of an n-gram, with items ``step`` apart, in each row: rows × 1."""
    starts = int(rows.shape[1]) - (len(gram) - 1) * step  # type: ignore[arg-type]  # constant
    hits = [rows.part(1, i * step, i * step + starts).equals(int(g)) for i, g in enumerate(gram)]
    both = reduce(lambda a, b: a & b, hits)
    return both.to(FLOAT32).call("reduce_sum", axes=(1,), keepdims=True)


TEXT: dict[str, Callable[[Node], Result]] = {"TfIdfVectorizer": _tf_idf}
