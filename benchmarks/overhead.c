/* Nanoseconds of weft_run for a program without instructions: see overhead.py, which writes words.h. */
#include <stdio.h>

#include "weft_runtime.h"
#include "words.h"

int main(void) {
    weft_executable *exe;
    weft_error error;
    const weft_parts parts = {0};
    if (weft_executable_create(words, sizeof words / sizeof words[0], &parts, 1, &exe, &error)) {
        puts(error.message);
        return 1;
    }
    float x[4] = {0}, y[4];
    int64_t shape[1] = {4}, out_shape[1];
    weft_tensor input = {.data = x, .shape = shape, .nbytes = sizeof x, .ndim = 1};
    double best = 1e9;
    for (int round = 0; round < 20; round++) {
        int64_t start = weft_nanoseconds();
        for (int i = 0; i < 10000; i++) {
            weft_tensor output = {.data = y, .shape = out_shape, .nbytes = sizeof y, .ndim = 1};
            if (weft_run(exe, &input, &output, NULL, &error)) return 2;
        }
        double each = (double)(weft_nanoseconds() - start) / 10000;
        if (each < best) best = each;
    }
    printf("%f\n", best);
    weft_executable_free(exe);
    return 0;
}
