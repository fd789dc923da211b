/* Instructions that read elements: sizes stored in tensors, and checks of indices against their ranges. */
#include <string.h>

#include "execute.h"

static int64_t read_element(const char *from, int32_t element) {
    union {
        uint8_t u8;
        int8_t i8;
        uint16_t u16;
        int16_t i16;
        uint32_t u32;
        int32_t i32;
        int64_t i64;
    } v;
    memcpy(&v, from, (size_t)(element & ~ELEMENT_SIGNED));
    switch (element) {
    case 1: return v.u8;
    case 2: return v.u16;
    case 4: return v.u32;
    case ELEMENT_SIGNED + 1: return v.i8;
    case ELEMENT_SIGNED + 2: return v.i16;
    case ELEMENT_SIGNED + 4: return v.i32;
    default: return v.i64;
    }
}

int32_t weft_read_size(run *r, const instruction *i, int64_t at) {
    int32_t status = weft_need_buffer(r, i->b, at);
    if (status) return status;
    int32_t element = r->p->buffers[i->b].element;
    int64_t width = element & ~ELEMENT_SIGNED;
    if (width > r->f->capacities[i->b] || i->c > (r->f->capacities[i->b] - width) / width)
        return weft_fail_at(r, WEFT_ERROR_BOUNDS, i->b, at, "a size is read outside its buffer");
    r->f->registers[i->a] = read_element((const char *)r->f->pointers[i->b] + i->c * width, element);
    return WEFT_OK;
}

/* The first of `count` elements that is outside the range of its column, or `count`. */
static int64_t find_outside(const char *from, int32_t element, int64_t count, const int64_t *low, const int64_t *high,
                            int32_t columns) {
    const int64_t width = element & ~ELEMENT_SIGNED;
    for (int64_t n = 0, column = 0; n < count; n++, column = column + 1 < columns ? column + 1 : 0) {
        int64_t value = read_element(from + n * width, element);
        if (value < low[column] || value > high[column]) return n;
    }
    return count;
}

enum {
    CHUNK = 256,   /* elements checked by one loop of fixed length */
    QUARTER = 64,  /* of a chunk: four numbers that do not wait for each other gather what is outside */
    COLUMN_CHUNK = 64,
};

/* Whether all elements are between two numbers: `v - low` and `high - v` both have no sign bit exactly there, also where they
   wrap around, as one of them then has it. Processors that cannot compare vectors of 64 bits do this in vectors too. A loop of
   a fixed length that gathers into local variables becomes one of vectors in registers at any level of optimization that knows
   vectors; an array would stay in memory. The buffer is aligned. */
#define WEFT_ALL_INSIDE(name, type, whole, machine)                                                   \
    machine static bool name(const type *v, int64_t count, type low, type high) {                     \
        const whole least = (whole)low, most = (whole)high;                                           \
        whole any = 0;                                                                                \
        for (; count >= CHUNK; v += CHUNK, count -= CHUNK) {                                          \
            whole a = 0, b = 0, c = 0, d = 0;                                                         \
            for (int k = 0; k < QUARTER; k++) {                                                       \
                const whole p = (whole)v[k], q = (whole)v[QUARTER + k];                               \
                const whole r = (whole)v[2 * QUARTER + k], s = (whole)v[3 * QUARTER + k];             \
                a |= (p - least) | (most - p), b |= (q - least) | (most - q);                         \
                c |= (r - least) | (most - r), d |= (s - least) | (most - s);                         \
            }                                                                                         \
            any |= a | b | c | d;                                                                     \
        }                                                                                             \
        for (int64_t n = 0; n < count; n++) any |= ((whole)v[n] - least) | (most - (whole)v[n]);      \
        return any >> (8 * sizeof(type) - 1) == 0;                                                    \
    }
WEFT_ALL_INSIDE(any_inside_32, int32_t, uint32_t, )
WEFT_ALL_INSIDE(any_inside_64, int64_t, uint64_t, )

/* The runtime is built for any processor of its architecture. Where the one at hand has wider vectors, a check of indices in
   memory takes a quarter of the time: as long as reading them. */
#if defined(__x86_64__) && defined(__GNUC__)
WEFT_ALL_INSIDE(wide_inside_32, int32_t, uint32_t, __attribute__((target("avx2"))))
WEFT_ALL_INSIDE(wide_inside_64, int64_t, uint64_t, __attribute__((target("avx2"))))
#if defined(__clang__)
#define WEFT_WIDEST __attribute__((target("avx512f"), min_vector_width(512)))
#else
#define WEFT_WIDEST __attribute__((target("avx512f,prefer-vector-width=512")))
#endif
WEFT_ALL_INSIDE(widest_inside_32, int32_t, uint32_t, WEFT_WIDEST)
WEFT_ALL_INSIDE(widest_inside_64, int64_t, uint64_t, WEFT_WIDEST)
#undef WEFT_WIDEST
#define WEFT_CHOOSE(bits)                                                                             \
    static bool all_inside_##bits(const int##bits##_t *v, int64_t count, int##bits##_t low, int##bits##_t high) { \
        if (__builtin_cpu_supports("avx512f")) return widest_inside_##bits(v, count, low, high);      \
        if (__builtin_cpu_supports("avx2")) return wide_inside_##bits(v, count, low, high);           \
        return any_inside_##bits(v, count, low, high);                                                \
    }
WEFT_CHOOSE(32)
WEFT_CHOOSE(64)
#undef WEFT_CHOOSE
#else
#define all_inside_32 any_inside_32
#define all_inside_64 any_inside_64
#endif
#undef WEFT_ALL_INSIDE

/* The same for elements in rows of `columns`, each with a range of its own. The ranges are laid out like the elements of a
   chunk that begins with any column. */
#define WEFT_ALL_IN_COLUMNS(name, type, whole)                                                        \
    static bool name(const type *v, int64_t count, const type *low, const type *high, int columns) {  \
        whole laid_least[COLUMN_CHUNK + MAX_RANK], laid_most[COLUMN_CHUNK + MAX_RANK], any = 0;       \
        for (int k = 0; k < COLUMN_CHUNK + columns; k++)                                              \
            laid_least[k] = (whole)low[k % columns], laid_most[k] = (whole)high[k % columns];         \
        int first = 0; /* the column of the next element */                                           \
        for (; count >= COLUMN_CHUNK; v += COLUMN_CHUNK, count -= COLUMN_CHUNK) {                     \
            const whole *least = laid_least + first, *most = laid_most + first;                       \
            whole a = 0;                                                                              \
            for (int k = 0; k < COLUMN_CHUNK; k++) a |= ((whole)v[k] - least[k]) | (most[k] - (whole)v[k]); \
            any |= a;                                                                                 \
            first = (first + COLUMN_CHUNK) % columns;                                                 \
        }                                                                                             \
        for (int k = 0; k < count; k++)                                                               \
            any |= ((whole)v[k] - laid_least[first + k]) | (laid_most[first + k] - (whole)v[k]);      \
        return any >> (8 * sizeof(type) - 1) == 0;                                                    \
    }
WEFT_ALL_IN_COLUMNS(all_in_columns_32, int32_t, uint32_t)
WEFT_ALL_IN_COLUMNS(all_in_columns_64, int64_t, uint64_t)
#undef WEFT_ALL_IN_COLUMNS

enum { MIN_LAID_OUT = 64 }; /* elements for which it pays to lay out ranges */

/* Whether 32-bit elements are certainly inside. */
static bool certainly_inside_32(const int32_t *v, int64_t count, const int64_t *low, const int64_t *high, int columns) {
    int32_t least[MAX_RANK], most[MAX_RANK];
    for (int k = 0; k < columns; k++) {
        const int64_t from = low[k] > INT32_MIN ? low[k] : INT32_MIN, to = high[k] < INT32_MAX ? high[k] : INT32_MAX;
        if (from > to) return false;
        least[k] = (int32_t)from, most[k] = (int32_t)to;
    }
    return columns == 1 ? all_inside_32(v, count, least[0], most[0]) : all_in_columns_32(v, count, least, most, columns);
}

static bool certainly_inside_64(const int64_t *v, int64_t count, const int64_t *low, const int64_t *high, int columns) {
    return columns == 1 ? all_inside_64(v, count, low[0], high[0]) : all_in_columns_64(v, count, low, high, columns);
}

static int32_t fail_range(run *r, const instruction *i, int64_t at, int64_t column, int64_t found, int64_t low, int64_t high) {
    (void)weft_fail(r->error, WEFT_ERROR_RANGE, "an index is %lld where it must lie in %lld to %lld", (long long)found,
                    (long long)low, (long long)high);
    if (r->error) {
        r->error->index = i->a, r->error->axis = (int32_t)column, r->error->instruction = at;
        r->error->given = found, r->error->expected = found < low ? low : high;
    }
    return WEFT_ERROR_RANGE;
}

int32_t weft_check_range(run *r, const instruction *i, int64_t at) {
    int64_t count, low[MAX_RANK], high[MAX_RANK];
    int32_t status = weft_value_of(r, i->c, at, &count), columns = i->size_count;
    for (int32_t k = 0; k < columns && !status; k++) status = weft_value_of(r, i->sizes[k], at, &low[k]);
    for (int32_t k = 0; k < columns && !status; k++) status = weft_value_of(r, i->sizes[columns + k], at, &high[k]);
    if (!status && count) status = weft_need_buffer(r, i->a, at);
    if (status || !count) return status;
    const int32_t element = r->p->buffers[i->a].element;
    const int64_t width = element & ~ELEMENT_SIGNED;
    if (count < 0 || count > r->f->capacities[i->a] / width)
        return weft_fail_at(r, WEFT_ERROR_BOUNDS, i->a, at, "a range is checked outside its buffer");
    const char *from = r->f->pointers[i->a];
    const bool fast = (uintptr_t)from % (uintptr_t)width == 0 && columns > 0 && (columns == 1 || count >= MIN_LAID_OUT);
    if (fast && element == ELEMENT_SIGNED + 8 && certainly_inside_64((const int64_t *)from, count, low, high, columns))
        return WEFT_OK;
    if (fast && element == ELEMENT_SIGNED + 4 && certainly_inside_32((const int32_t *)from, count, low, high, columns))
        return WEFT_OK;
    int64_t n = find_outside(from, element, count, low, high, columns);
    if (n == count) return WEFT_OK;
    return fail_range(r, i, at, n % columns, read_element(from + n * width, element), low[n % columns], high[n % columns]);
}
