/* words
 *
 * buffers, in order:
 *   int: int32[64]
 *   y-1: int8[64] (written)
 * Returns 0, or what is wrong. */
#include <stdint.h>

#if defined(__GNUC__)
#define WORKER static __attribute__((noinline))
#else
#define WORKER static
#endif

#define WEFT_TEXT(x) #x
#if defined(__clang__)
#define UNROLL(n) _Pragma(WEFT_TEXT(clang loop unroll_count(n)))
#elif defined(__GNUC__)
#define UNROLL(n) _Pragma(WEFT_TEXT(GCC unroll n))
#else
#define UNROLL(n)
#endif

#if defined(__GNUC__)
#define PREFETCH(p, level) __builtin_prefetch(p, 0, 4 - level)
#else
#define PREFETCH(p, level) ((void)(p))
#endif

static inline int32_t floordiv_i32(int32_t a, int32_t b) {
    return a / b - (a % b != 0 && (a % b < 0) != (b < 0));
}

WORKER int32_t words_work(const int32_t *restrict int_2, int8_t *restrict y_1) {
UNROLL(4)
    for (int64_t for_2 = 0; for_2 < 64; for_2++) {
        PREFETCH(int_2 + (for_2 + 8), 1);
        const int32_t v = int_2[for_2];
        if (v > 0) {
            y_1[for_2] = (int8_t)(int32_t)((uint32_t)(int32_t)((uint32_t)v * (uint32_t)v) + (uint32_t)7);
        } else {
            y_1[for_2] = (int8_t)(int32_t)((uint32_t)floordiv_i32(v, 7) + (uint32_t)(v & 7));
        }
    }
    return 0;
}

int32_t words(void *const *buffers, const int64_t *sizes) {
    (void)sizes;
    return words_work(buffers[0], buffers[1]);
}
