/* matmul
 *
 * buffers, in order:
 *   A: float32[1024]
 *   B: float32[2048]
 *   C: float32[512] (written)
 * Returns 0, or what is wrong. */
#include <stdint.h>

#if defined(__GNUC__)
#define WORKER static __attribute__((noinline))
#else
#define WORKER static
#endif

typedef float f32x16 __attribute__((vector_size(64)));
typedef float f32x16_u __attribute__((vector_size(64), aligned(4), may_alias));

static inline f32x16 splat_f32x16(float a) {
    return (f32x16){a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a};
}

static inline f32x16 load_f32x16(const float *p) {
    return *(const f32x16_u *)p;
}

static inline void store_f32x16(float *p, f32x16 x) {
    *(f32x16_u *)p = x;
}

int32_t weft_parallel_for(int32_t (*body)(int64_t begin, int64_t end, void *closure), int64_t count, int64_t grain,
                          void *closure);

struct matmul_par0 {
    const float *A_0;
    const float *B_1;
    float *C_2;
};

WORKER int32_t matmul_par0_work(int64_t begin, int64_t end, const float *restrict A, const float *restrict B, float *restrict C) {
    for (int64_t i = begin; i < end; i++) {
        f32x16 R_0, R_16, R_32, R_48, R_64, R_80, R_96, R_112;
        R_0 = splat_f32x16(0.0f);
        R_16 = splat_f32x16(0.0f);
        R_32 = splat_f32x16(0.0f);
        R_48 = splat_f32x16(0.0f);
        R_64 = splat_f32x16(0.0f);
        R_80 = splat_f32x16(0.0f);
        R_96 = splat_f32x16(0.0f);
        R_112 = splat_f32x16(0.0f);
        for (int64_t k = 0; k < 64; k++) {
            const int64_t t1 = i * 256 + k;
            const f32x16 t2 = splat_f32x16(A[t1]);
            const int64_t t3 = k * 32;
            const f32x16 t4 = load_f32x16(B + t3);
            R_0 = R_0 + t2 * t4;
            const f32x16 t5 = load_f32x16(B + (t3 + 16));
            R_16 = R_16 + t2 * t5;
            const f32x16 t6 = splat_f32x16(A[t1 + 64]);
            R_32 = R_32 + t6 * t4;
            R_48 = R_48 + t6 * t5;
            const f32x16 t7 = splat_f32x16(A[t1 + 128]);
            R_64 = R_64 + t7 * t4;
            R_80 = R_80 + t7 * t5;
            const f32x16 t8 = splat_f32x16(A[t1 + 192]);
            R_96 = R_96 + t8 * t4;
            R_112 = R_112 + t8 * t5;
        }
        const int64_t t9 = i * 128;
        store_f32x16(C + t9, R_0);
        store_f32x16(C + (t9 + 16), R_16);
        store_f32x16(C + (t9 + 32), R_32);
        store_f32x16(C + (t9 + 48), R_48);
        store_f32x16(C + (t9 + 64), R_64);
        store_f32x16(C + (t9 + 80), R_80);
        store_f32x16(C + (t9 + 96), R_96);
        store_f32x16(C + (t9 + 112), R_112);
    }
    return 0;
}

static int32_t matmul_par0(int64_t begin, int64_t end, void *closure) {
    const struct matmul_par0 *const c = closure;
    return matmul_par0_work(begin, end, c->A_0, c->B_1, c->C_2);
}

WORKER int32_t matmul_work(const float *restrict A, const float *restrict B, float *restrict C) {
    struct matmul_par0 captured1 = {A, B, C};
    const int32_t failed1 = weft_parallel_for(matmul_par0, 4, 1, &captured1);
    if (failed1)
        return failed1;
    return 0;
}

int32_t matmul(void *const *buffers, const int64_t *sizes) {
    (void)sizes;
    return matmul_work(buffers[0], buffers[1], buffers[2]);
}
