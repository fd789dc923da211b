/* Many threads use pools, values, scratch memory and one executable at once, under a thread sanitizer: stress ROUNDS. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "weft_runtime.h"

enum { CALLERS = 4, COUNT = 1000 };

static const int64_t words[] = {WORDS};
static weft_executable *executable;
static weft_value *shared;
static _Atomic int failures;
static int rounds;

static int32_t fill(int64_t begin, int64_t end, void *closure) {
    int64_t *to = closure;
    char *scratch = weft_scratch((end - begin) * 8 + 1);
    if (!scratch) return 7;
    for (int64_t i = begin; i < end; i++) scratch[i - begin] = (char)i, to[i] = i * i;
    weft_scratch_release((end - begin) * 8 + 1);
    return 0;
}
static int32_t fail(int64_t begin, int64_t end, void *closure) { return begin <= 500 && 500 < end ? *(int32_t *)closure : 0; }
static int32_t square(int64_t begin, int64_t end, void *closure) {
    void *const *b = closure;
    for (int64_t i = begin; i < end; i++) ((float *)b[1])[i] = ((float *)b[0])[i] * ((float *)b[0])[i];
    return 0;
}
static int32_t kernel(void *const *b, const int64_t *s) { return weft_parallel_for(square, s[0], 1, (void *)b); }
static int32_t never(void *context) { return *(int32_t *)context; }

static void check(int good) {
    if (!good) atomic_fetch_add(&failures, 1);
}

static int32_t note_thread(int64_t begin, int64_t end, void *closure) {
    (void)begin, (void)end;
    return pthread_equal(pthread_self(), *(const pthread_t *)closure) ? 0 : 9;
}
/* A serial run inside a run on several threads, as in a host operator, stays on its thread; twice nested too. */
static void use_serial(void) {
    pthread_t self = pthread_self();
    void *several = weft_parallel_begin(3), *one = weft_parallel_begin(1);
    check(weft_parallel_for(note_thread, COUNT, 1, &self) == 0);
    void *again = weft_parallel_begin(2), *inner = weft_parallel_begin(1);
    check(weft_parallel_for(note_thread, COUNT, 1, &self) == 0);
    weft_parallel_end(inner);
    weft_parallel_end(again);
    check(weft_parallel_for(note_thread, COUNT, 1, &self) == 0);
    weft_parallel_end(one);
    weft_parallel_end(several);
}

/* Runs inside runs use as many threads as they ask for, and the outer ones go on with theirs. */
static int32_t count_chunks(int64_t begin, int64_t end, void *closure) {
    (void)begin, (void)end;
    atomic_fetch_add((_Atomic int32_t *)closure, 1);
    return 0;
}
static int32_t chunks_of(int64_t count) {
    _Atomic int32_t chunks = 0;
    check(weft_parallel_for(count_chunks, count, 1, &chunks) == 0);
    return atomic_load(&chunks);
}
static void use_nested(void) {
    static const int32_t asked[] = {3, 2, 2, 1, 4, 1, 1, 3};
    enum { DEPTH = sizeof asked / sizeof *asked };
    void *tokens[DEPTH];
    for (int i = 0; i < DEPTH; i++) {
        tokens[i] = weft_parallel_begin(asked[i]);
        check(chunks_of(asked[i]) == asked[i]); /* an iteration for each thread; one chunk if there is one */
    }
    for (int i = DEPTH; i-- > 0; weft_parallel_end(tokens[i])) check(chunks_of(asked[i]) == asked[i]);
    check(chunks_of(COUNT) == 1);
}

static void use_pool(int number) {
    static _Thread_local int64_t squares[COUNT];
    int32_t forty_two = 42;
    void *token = weft_parallel_begin(2 + number % 3);
    check(weft_parallel_for(fill, COUNT, 1, squares) == 0 && squares[COUNT - 1] == (COUNT - 1) * (COUNT - 1));
    check(weft_parallel_for(fail, COUNT, 1, &forty_two) == 42);
    weft_parallel_end(token);
}

static void use_executable(void) {
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, y[8];
    int64_t shape[1] = {8}, out_shape[1];
    int32_t zero = 0;
    weft_tensor input = {x, shape, sizeof x, 1, NULL, NULL}, output = {y, out_shape, sizeof y, 1, NULL, NULL};
    weft_error error;
    weft_watch *watch = weft_watch_begin(INT64_MAX, never, &zero, 1000);
    check(weft_run(executable, &input, &output, NULL, &error) == 0 && y[7] == 64);
    weft_watch_end(watch);
}

static void *caller(void *argument) {
    int number = (int)(intptr_t)argument;
    for (int i = 0; i < rounds; i++) {
        use_pool(number + i);
        use_serial();
        use_nested();
        use_executable();
        weft_value *held = weft_value_retain(shared), *fields[] = {held};
        weft_value *data = weft_value_data(1, 1, fields);
        weft_value_release(held);
        weft_value_release(data);
        if (i % 16 == number) weft_trim(), (void)weft_executable_trim(executable);
        (void)weft_executable_held_bytes(executable);
    }
    weft_value_release(shared); /* each caller has one reference; the last frees the value */
    return NULL;
}

int main(int count, char **arguments) {
    rounds = count > 1 ? atoi(arguments[1]) : 100;
    const weft_kernel_code kernels[] = {{kernel, NULL, NULL, NULL, 0}};
    const weft_parts parts = {.kernels = kernels, .kernel_count = 1};
    weft_error error;
    if (weft_executable_create(words, sizeof words / 8, &parts, 2, &executable, &error)) return puts(error.message), 1;
    int64_t shape[1] = {4};
    shared = weft_value_tensor(1, shape, 16);
    for (int i = 1; i < CALLERS; i++) (void)weft_value_retain(shared);
    pthread_t threads[CALLERS];
    for (int i = 0; i < CALLERS; i++) pthread_create(&threads[i], NULL, caller, (void *)(intptr_t)i);
    for (int i = 0; i < CALLERS; i++) pthread_join(threads[i], NULL);
    weft_executable_free(executable);
    printf("%d failures\n", atomic_load(&failures));
    return atomic_load(&failures) != 0;
}
