/* Open devices: who holds them, and their tables with errors told in one form. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "devices.h"

enum { MAX_KINDS = 64 };

struct weft_device {
    _Atomic int64_t references, allocations, kernels;
    const weft_device_table *table;
    void *state;
    int32_t index;
    char kind[WEFT_KIND_BYTES];
};

typedef struct registration {
    char kind[WEFT_KIND_BYTES];
    const weft_device_table *table;
    void *context;
} registration;

static registration registered[MAX_KINDS] = {{"cpu", &weft_cpu_table, NULL}};
static int32_t registered_count = 1;
static pthread_mutex_t registry = PTHREAD_MUTEX_INITIALIZER;

static void lock_registry(void) { pthread_mutex_lock(&registry); }
static void unlock_registry(void) { pthread_mutex_unlock(&registry); }

__attribute__((constructor)) static void guard_forks(void) {
    (void)pthread_atfork(lock_registry, unlock_registry, unlock_registry);
}

static registration *find_kind(const char *kind) {
    for (int32_t i = 0; i < registered_count; i++)
        if (strcmp(registered[i].kind, kind) == 0) return &registered[i];
    return NULL;
}

int32_t weft_device_register(const char *kind, const weft_device_table *table, void *context, weft_error *error) {
    if (!kind[0] || strlen(kind) >= WEFT_KIND_BYTES)
        return weft_fail(error, WEFT_ERROR_DEVICE, "the name of a kind of devices is empty or too long");
    if (table->version != WEFT_DEVICE_VERSION)
        return weft_fail(error, WEFT_ERROR_DEVICE, "the table of '%s' has version %d, not %d", kind, (int)table->version,
                         WEFT_DEVICE_VERSION);
    int32_t status = WEFT_OK;
    lock_registry();
    const registration *known = find_kind(kind);
    if (known && (known->table != table || known->context != context)) {
        status = weft_fail(error, WEFT_ERROR_DEVICE, "there are devices of kind '%s' already", kind);
    } else if (!known && registered_count == MAX_KINDS) {
        status = weft_fail(error, WEFT_ERROR_DEVICE, "there are too many kinds of devices");
    } else if (!known) {
        registration *r = &registered[registered_count++];
        *r = (registration){.table = table, .context = context};
        memcpy(r->kind, kind, strlen(kind) + 1);
    }
    unlock_registry();
    return status;
}

/* What a table reported, as an error of one form. */
static int32_t fail_device(const weft_device *d, const char *doing, int32_t status, const weft_error *told, weft_error *error) {
    if (status != WEFT_ERROR_MEMORY && status != WEFT_ERROR_KERNEL) status = WEFT_ERROR_DEVICE;
    (void)weft_fail(error, status, "device %s(%d) cannot %s: %.120s", d->kind, (int)d->index, doing,
                    told->message[0] ? told->message : "it does not say why");
    if (error) error->given = told->given;
    return status;
}

static weft_error fresh(void) { return (weft_error){.index = -1, .axis = -1, .instruction = -1}; }

/* ---- opening and closing ----------------------------------------------------------------------------------------- */

int32_t weft_device_open_table(const char *kind, const weft_device_table *table, void *context, int32_t index,
                               weft_device **out, weft_error *error) {
    *out = NULL;
    if (!kind[0] || strlen(kind) >= WEFT_KIND_BYTES || table->version != WEFT_DEVICE_VERSION)
        return weft_fail(error, WEFT_ERROR_DEVICE, "a table of devices without a proper name, or of another version");
    weft_device *d = calloc(1, sizeof *d);
    if (!d) return weft_fail(error, WEFT_ERROR_MEMORY, "out of memory while opening a device");
    d->table = table;
    d->index = index;
    memcpy(d->kind, kind, strlen(kind) + 1);
    atomic_init(&d->references, 1);
    weft_error told = fresh();
    int32_t status = table->open(context, index, &d->state, &told);
    if (status) {
        status = fail_device(d, "be opened", status, &told, error);
        free(d);
        return status;
    }
    *out = d;
    return WEFT_OK;
}

int32_t weft_device_open(const char *kind, int32_t index, weft_device **out, weft_error *error) {
    *out = NULL;
    lock_registry();
    const registration *r = find_kind(kind);
    const registration found = r ? *r : (registration){.table = NULL};
    unlock_registry();
    if (!found.table) return weft_fail(error, WEFT_ERROR_DEVICE, "there are no devices of kind '%.60s'", kind);
    return weft_device_open_table(kind, found.table, found.context, index, out, error);
}

weft_device *weft_device_retain(weft_device *d) {
    atomic_fetch_add(&d->references, 1);
    return d;
}

void weft_device_release(weft_device *d) {
    if (!d || atomic_fetch_sub(&d->references, 1) != 1) return;
    d->table->close(d->state);
    free(d);
}

const char *weft_device_kind(const weft_device *d) { return d->kind; }
int32_t weft_device_index(const weft_device *d) { return d->index; }
int64_t weft_device_allocations(const weft_device *d) { return atomic_load(&d->allocations); }
int64_t weft_device_kernels(const weft_device *d) { return atomic_load(&d->kernels); }

/* ---- the table --------------------------------------------------------------------------------------------------- */

int32_t weft_device_ask(weft_device *d, weft_device_info *info, weft_error *error) {
    weft_error told = fresh();
    memset(info, 0, sizeof *info);
    int32_t status = d->table->info(d->state, info, &told);
    info->name[sizeof info->name - 1] = info->formats[sizeof info->formats - 1] = 0;
    return status ? fail_device(d, "tell what it is", status, &told, error) : WEFT_OK;
}

int32_t weft_device_allocate(weft_device *d, int64_t nbytes, void **address, weft_error *error) {
    weft_error told = fresh();
    *address = NULL;
    int32_t status = d->table->allocate(d->state, nbytes > 0 ? nbytes : 1, address, &told);
    if (!status && !*address) status = weft_fail(&told, WEFT_ERROR_DEVICE, "the address is 0");
    if (status) return fail_device(d, "allocate memory", status, &told, error);
    atomic_fetch_add(&d->allocations, 1);
    return WEFT_OK;
}

void weft_device_free(weft_device *d, void *address) {
    if (!address) return;
    d->table->free(d->state, address);
    atomic_fetch_sub(&d->allocations, 1);
}

int32_t weft_device_copy_in(weft_device *d, void *to, const void *from, int64_t nbytes, weft_error *error) {
    weft_error told = fresh();
    int32_t status = nbytes > 0 ? d->table->copy_in(d->state, to, from, nbytes, &told) : WEFT_OK;
    return status ? fail_device(d, "copy data in", status, &told, error) : WEFT_OK;
}

int32_t weft_device_copy_out(weft_device *d, void *to, const void *from, int64_t nbytes, weft_error *error) {
    weft_error told = fresh();
    int32_t status = nbytes > 0 ? d->table->copy_out(d->state, to, from, nbytes, &told) : WEFT_OK;
    return status ? fail_device(d, "copy data out", status, &told, error) : WEFT_OK;
}

static int32_t copy_across(weft_device *d, void *to, const void *from, int64_t nbytes, weft_error *error) {
    weft_error told = fresh();
    int32_t status = nbytes > 0 && to != from ? d->table->copy_across(d->state, to, from, nbytes, &told) : WEFT_OK;
    return status ? fail_device(d, "copy data across", status, &told, error) : WEFT_OK;
}

int32_t weft_device_copy(weft_device *to_device, void *to, weft_device *from_device, const void *from, int64_t nbytes,
                         weft_error *error) {
    if (nbytes <= 0) return WEFT_OK;
    if (to_device == from_device) {
        if (to_device) return copy_across(to_device, to, from, nbytes, error);
        memmove(to, from, (size_t)nbytes);
        return WEFT_OK;
    }
    if (!from_device) return weft_device_copy_in(to_device, to, from, nbytes, error);
    if (!to_device) return weft_device_copy_out(from_device, to, from, nbytes, error);
    void *between = weft_alloc_large(nbytes);
    if (!between) return weft_fail(error, WEFT_ERROR_MEMORY, "out of memory for a copy between devices");
    int32_t status = weft_device_copy_out(from_device, between, from, nbytes, error);
    if (!status) status = weft_device_copy_in(to_device, to, between, nbytes, error);
    weft_free(between);
    return status;
}

int32_t weft_device_load(weft_device *d, const char *format, const void *code, size_t nbytes, const char *entry,
                         void **kernel, weft_error *error) {
    weft_error told = fresh();
    *kernel = NULL;
    int32_t status = d->table->load(d->state, format, code, nbytes, entry, kernel, &told);
    if (!status && !*kernel) status = weft_fail(&told, WEFT_ERROR_DEVICE, "there is no kernel '%.60s'", entry);
    if (status) return fail_device(d, "load a kernel", status, &told, error);
    atomic_fetch_add(&d->kernels, 1);
    return WEFT_OK;
}

void weft_device_unload(weft_device *d, void *kernel) {
    if (!kernel) return;
    d->table->unload(d->state, kernel);
    atomic_fetch_sub(&d->kernels, 1);
}

int32_t weft_device_launch(weft_device *d, void *kernel, void *const *buffers, int32_t buffer_count, const int64_t *sizes,
                           int32_t size_count, const weft_launch *launch, weft_error *error) {
    weft_error told = fresh();
    int32_t status = d->table->launch(d->state, kernel, buffers, buffer_count, sizes, size_count, launch, &told);
    return status ? fail_device(d, "launch a kernel", status, &told, error) : WEFT_OK;
}

int32_t weft_device_synchronize(weft_device *d, weft_error *error) {
    weft_error told = fresh();
    int32_t status = d->table->synchronize(d->state, &told);
    return status ? fail_device(d, "finish its work", status, &told, error) : WEFT_OK;
}
