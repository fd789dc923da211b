/* clipped
 *
 * buffers, in order:
 *   x: float32[n]
 *   y: float32[n] (written)
 * sizes: n
 * Returns 0, or what is wrong. */
#include <stdint.h>

#if defined(__GNUC__)
#define WORKER static __attribute__((noinline))
#else
#define WORKER static
#endif

#if defined(__clang__)
#define EACH_LANE(n) _Pragma("clang loop unroll(full)") for (int l = 0; l < (n); l++)
#else
#define EACH_LANE(n) for (int l = 0; l < (n); l++)
#endif

typedef int32_t i32x16 __attribute__((vector_size(64)));
typedef float f32x16 __attribute__((vector_size(64)));

static inline i32x16 first_lanes_i32x16(int64_t n) {
    const int32_t k = n < 0 ? 0 : n > 16 ? 16 : (int32_t)n;
    i32x16 r;
    EACH_LANE(16) r[l] = l < k ? -1 : 0;
    return r;
}

static inline f32x16 load_masked_f32x16(const float *p, i32x16 m) {
#if defined(__clang__)
    return (f32x16)__builtin_ia32_loadups512_mask((const float *)p, (f32x16){0}, (unsigned short)__builtin_ia32_cmpd512_mask(m, (i32x16){0}, 1, (unsigned short)-1));
#else
    f32x16 r;
    EACH_LANE(16) r[l] = m[l] ? p[l] : 0;
    return r;
#endif
}

static inline f32x16 splat_f32x16(float a) {
    return (f32x16){a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a};
}

static inline float max_f32(float a, float b) {
    return a > b ? a : b;
}

static inline f32x16 max_f32x16(f32x16 a, f32x16 b) {
    f32x16 r;
    EACH_LANE(16) r[l] = max_f32(a[l], b[l]);
    return r;
}

static inline void store_masked_f32x16(float *p, f32x16 x, i32x16 m) {
#if defined(__clang__)
    __builtin_ia32_storeups512_mask((float *)p, (f32x16)x, (unsigned short)__builtin_ia32_cmpd512_mask(m, (i32x16){0}, 1, (unsigned short)-1));
#else
    EACH_LANE(16) if (m[l]) p[l] = x[l];
#endif
}

WORKER int32_t clipped_work(const float *restrict x, float *restrict y, int64_t n) {
    for (int64_t i = 0; i < (n + 15) >> 4; i++) {
        const int64_t t1 = i * 16;
        const i32x16 t2 = first_lanes_i32x16(n - t1);
        store_masked_f32x16(y + t1, max_f32x16(splat_f32x16(0.0f), load_masked_f32x16(x + t1, t2)), t2);
    }
    return 0;
}

int32_t clipped(void *const *buffers, const int64_t *sizes) {
    const int64_t n = sizes[0];
    return clipped_work(buffers[0], buffers[1], n);
}
