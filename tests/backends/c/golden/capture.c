/* capture
 *
 * buffers, in order:
 *   x: float32[n]
 *   y: float32[n * 3] (written)
 * sizes: n
 * Returns 0, or what is wrong. */
#include <stdint.h>

#if defined(__GNUC__)
#define WORKER static __attribute__((noinline))
#else
#define WORKER static
#endif

int32_t weft_parallel_for(int32_t (*body)(int64_t begin, int64_t end, void *closure), int64_t count, int64_t grain,
                          void *closure);
void *weft_scratch(int64_t bytes);
void weft_scratch_release(int64_t bytes);

struct capture_par0 {
    const float *x_0;
    float *y_1;
    int64_t n_v0;
    float v_v1;
    int64_t k_v2;
};

WORKER int32_t capture_par0_work(int64_t begin, int64_t end, const float *restrict x, float *restrict y, float *restrict s, int64_t n, float v, int64_t k) {
    for (int64_t j = begin; j < end; j++) {
        const int64_t t1 = j * 5000;
        s[t1] = x[j] * v;
        y[k * n + j] = s[t1] + (float)k;
    }
    return 0;
}

static int32_t capture_par0(int64_t begin, int64_t end, void *closure) {
    const struct capture_par0 *const c = closure;
    const int64_t bytes = ((c->n_v0 * 5000 * 4 + 63) >> 6) * 64;
    char *const scratch = weft_scratch(bytes);
    if (!scratch)
        return 1;
    const int32_t failed = capture_par0_work(begin, end, c->x_0, c->y_1, (float *)(scratch + 0), c->n_v0, c->v_v1, c->k_v2);
    weft_scratch_release(bytes);
    return failed;
}

WORKER int32_t capture_work(const float *restrict x, float *restrict y, int64_t n) {
    for (int64_t k = 0; k < 3; k++) {
        const float v = (float)k + 0.5f;
        struct capture_par0 captured1 = {x, y, n, v, k};
        const int32_t failed1 = weft_parallel_for(capture_par0, n, 1, &captured1);
        if (failed1)
            return failed1;
    }
    return 0;
}

int32_t capture(void *const *buffers, const int64_t *sizes) {
    const int64_t n = sizes[0];
    return capture_work(buffers[0], buffers[1], n);
}
