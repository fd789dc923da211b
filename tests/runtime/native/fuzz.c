/* Feeds malformed programs and object files to the decoder and the loader: fuzz SEED COUNT FILE…
 *
 * A file *.words holds a program, any other an object. Each input is a file with a few random changes, in memory of exactly
 * its size. A program that is accepted is run, on inputs that are freed before its results are read. The kernels do
 * nothing: what they would do is trusted. Build it with -fsanitize=address,undefined; a finding ends the process. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "execute.h"

enum { MAX_FILES = 64, MAX_CHANGES = 6, MAX_EXTENT = 5, RUN_NANOSECONDS = 20000000, MAX_VALUES = 4096 };

typedef struct file {
    unsigned char *bytes;
    size_t size;
    bool is_program;
    long kernels, constants;
} file;

static uint64_t state;
static weft_error why; /* the last input was refused */
static uint64_t next_random(void) { /* splitmix64 */
    uint64_t z = (state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}
static size_t below(size_t limit) { return limit ? (size_t)(next_random() % limit) : 0; }

static int64_t interesting(void) {
    static const int64_t numbers[] = {0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 25, 63, 64, 65, 255, 4095, 4096, 65535, 0xfff1, 0xfff2,
                                      -1, -2, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, 1LL << 20, 1LL << 32, 1LL << 40};
    size_t kind = below(4);
    return kind == 0 ? (int64_t)next_random() : kind == 1 ? (int64_t)below(40) : numbers[below(sizeof numbers / sizeof *numbers)];
}

/* Changes, moves, removes or repeats items of `width` bytes; returns the new size. There is room for twice the size. */
static size_t change(unsigned char *bytes, size_t size, size_t width) {
    size_t count = size / width, at = below(count) * width, from = below(count) * width;
    int64_t number = interesting();
    if (count == 0) return size;
    switch (below(8)) {
    case 0: number = 0, memcpy(&number, bytes + at, width);
        number = (int64_t)((uint64_t)number + below(5) - 2); /* fall through */
    case 1:
    case 2:
    case 3: memcpy(bytes + at, &number, width); return size;
    case 4: memcpy(bytes + at, bytes + from, width); return size;
    case 5: return below(4) ? size : at;
    case 6: memmove(bytes + at, bytes + at + width, size - at - width); return size - width;
    default: memmove(bytes + at + width, bytes + at, size - at); return size + width;
    }
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */

static int32_t kernel(void *const *buffers, const int64_t *sizes) { return (void)buffers, (void)sizes, 0; }

static int32_t host(void *context, int32_t number, weft_value *const *arguments, int32_t argument_count, weft_value **results,
                    int32_t result_count) {
    (void)context, (void)number;
    int64_t shape[1] = {2};
    for (int32_t i = 0; i < result_count; i++)
        results[i] = argument_count && below(2) ? weft_value_retain(arguments[below((size_t)argument_count)])
                                               : weft_value_tensor(1, shape, 8);
    return 0;
}

/* Reads all elements that a value shows; of very large values a part. */
static uint64_t read_value(const weft_value *v, int *left) {
    uint64_t sum = 0;
    if (--*left < 0) return 0;
    if (weft_value_kind_of(v) == WEFT_VALUE_DATA) {
        for (int32_t i = 0; i < weft_value_count(v); i++) sum += read_value(weft_value_field(v, i), left);
    } else if (weft_value_kind_of(v) == WEFT_VALUE_TENSOR) {
        const unsigned char *bytes = weft_value_payload(v);
        for (int64_t i = 0; i < weft_value_nbytes(v) && i < 1000; i++) sum += bytes[i];
    }
    return sum;
}

static weft_value *make_value(int depth) {
    int64_t shape[2] = {(int64_t)below(4), (int64_t)below(4)};
    if (depth == 0 || below(2)) {
        weft_value *made = weft_value_tensor(2, shape, shape[0] * shape[1] * 4);
        if (made) memset(weft_value_payload(made), 1, (size_t)weft_value_nbytes(made));
        return made;
    }
    weft_value *fields[2] = {make_value(depth - 1), make_value(depth - 1)};
    weft_value *made = weft_value_data((int64_t)below(3), 2, fields);
    weft_value_release(fields[0]);
    weft_value_release(fields[1]);
    return made;
}

static void fill_input(const program *p, const int64_t *registers, const tensor_spec *spec, weft_tensor *t) {
    *t = (weft_tensor){.ndim = spec->ndim, .shape = calloc((size_t)spec->ndim + 1, sizeof(int64_t))};
    if (spec->is_value) {
        t->value = make_value(3);
        return;
    }
    int64_t nbytes = spec->element_bytes;
    for (int32_t d = 0; d < spec->ndim; d++) {
        if (!weft_size_evaluate(&p->expressions[spec->dims[d]], registers, &t->shape[d]) || t->shape[d] < 0 || t->shape[d] > 64)
            t->shape[d] = (int64_t)below(MAX_EXTENT);
        nbytes *= t->shape[d];
        if (nbytes > 1 << 20) nbytes = 0, t->shape[d] = 0;
    }
    t->nbytes = nbytes;
    t->data = calloc((size_t)nbytes + !nbytes, 1);
}

static void run_program(weft_executable *e) {
    const program *p = &e->program;
    weft_tensor *inputs = calloc((size_t)p->input_count + 1, sizeof *inputs);
    weft_tensor *outputs = calloc((size_t)p->output_count + 1, sizeof *outputs);
    int64_t *registers = calloc((size_t)p->registers + 1, sizeof *registers);
    for (int32_t i = 0; i < p->symbols; i++) registers[i] = (int64_t)below(MAX_EXTENT);
    for (int32_t i = 0; i < p->input_count; i++) fill_input(p, registers, &p->inputs[i], &inputs[i]);
    for (int32_t i = 0; i < p->output_count; i++) outputs[i].shape = calloc((size_t)p->outputs[i].ndim + 1, sizeof(int64_t));
    weft_error error;
    weft_watch *watch = weft_watch_begin(weft_nanoseconds() + RUN_NANOSECONDS, NULL, NULL, 0);
    int32_t status = weft_run(e, inputs, outputs, NULL, &error);
    weft_watch_end(watch);
    for (int32_t i = 0; i < p->input_count; i++) {
        weft_value_release(inputs[i].value);
        free(inputs[i].data);
        free(inputs[i].shape);
    }
    volatile uint64_t sum = 0;
    for (int32_t i = 0; i < p->output_count; i++) {
        int left = MAX_VALUES;
        if (!status && outputs[i].value) sum += read_value(outputs[i].value, &left);
        weft_value_release(outputs[i].value);
        weft_free(outputs[i].data);
        free(outputs[i].shape);
    }
    free(inputs);
    free(outputs);
    free(registers);
}

static _Alignas(64) unsigned char constant[1 << 14];

static bool try_program(const file *f, const unsigned char *bytes, size_t size) {
    weft_kernel_code *kernels = calloc((size_t)f->kernels + 1, sizeof *kernels);
    void **constants = calloc((size_t)f->constants + 1, sizeof *constants);
    int64_t *constant_bytes = calloc((size_t)f->constants + 1, sizeof *constant_bytes);
    for (long i = 0; i < f->kernels; i++) kernels[i].function = kernel;
    for (long i = 0; i < f->constants; i++) constants[i] = constant, constant_bytes[i] = sizeof constant;
    const weft_parts parts = {kernels, (size_t)f->kernels, constants, constant_bytes, (size_t)f->constants, NULL, 0};
    weft_executable *e;
    int64_t *words = malloc(size + !size);
    memcpy(words, bytes, size);
    bool accepted = weft_executable_create(words, size / 8, &parts, 1, &e, &why) == WEFT_OK;
    free(words);
    if (accepted) {
        weft_executable_set_memory_limit(e, 1 << 20);
        weft_executable_set_host(e, host, NULL);
        run_program(e);
        run_program(e);
        weft_executable_free(e);
    }
    free(kernels);
    free(constants);
    free(constant_bytes);
    return accepted;
}

static bool try_object(const unsigned char *bytes, size_t size) {
    unsigned char *exact = malloc(size + !size);
    memcpy(exact, bytes, size);
    weft_code *code;
    bool accepted = weft_code_load(exact, size, WEFT_LOAD_FOREIGN, &code, &why) == WEFT_OK;
    free(exact);
    if (accepted) {
        (void)weft_code_function(code, "f");
        weft_code_free(code);
    }
    return accepted;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static file read_file(const char *path) {
    file f = {.is_program = strlen(path) > 6 && strcmp(path + strlen(path) - 6, ".words") == 0};
    FILE *in = fopen(path, "rb");
    if (!in) exit(2);
    f.bytes = malloc(1 << 20);
    f.size = fread(f.bytes, 1, 1 << 20, in);
    fclose(in);
    const int64_t *words = (const int64_t *)f.bytes;
    if (f.is_program) f.kernels = (long)words[8], f.constants = (long)words[9]; /* see program.h */
    return f;
}

int main(int count, char **arguments) {
    static file files[MAX_FILES];
    int file_count = count - 3;
    if (file_count < 1 || file_count > MAX_FILES) return 2;
    state = strtoull(arguments[1], NULL, 10);
    for (int i = 0; i < file_count; i++) files[i] = read_file(arguments[3 + i]);
    long accepted[2] = {0}, refused[2] = {0}, whole = 0;
    for (int i = 0; i < file_count; i++) {
        const file *f = &files[i];
        bool fits = f->is_program ? try_program(f, f->bytes, f->size) : try_object(f->bytes, f->size);
        if (!fits) fprintf(stderr, "%s is refused: %s\n", arguments[3 + i], why.message);
        whole += fits;
    }
    const int64_t blocks = weft_allocated_blocks();
    for (long n = strtol(arguments[2], NULL, 10); n > 0; n--) {
        const file *f = &files[below((size_t)file_count)];
        size_t size = f->size, width = f->is_program ? 8 : (size_t)1 << below(4);
        unsigned char *bytes = malloc(2 * f->size + 64);
        memcpy(bytes, f->bytes, f->size);
        for (size_t k = 1 + below(MAX_CHANGES); k > 0; k--) size = change(bytes, size, width);
        bool fits = f->is_program ? try_program(f, bytes, size) : try_object(bytes, size);
        (fits ? accepted : refused)[f->is_program]++;
        free(bytes);
    }
    for (int i = 0; i < file_count; i++) free(files[i].bytes);
    weft_trim();
    printf("%ld %ld %ld %ld %ld %lld\n", whole, accepted[1], refused[1], accepted[0], refused[0],
           (long long)(weft_allocated_blocks() - blocks));
    return 0;
}
