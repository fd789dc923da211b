/* The executor's side of devices: memory in their spaces, launches, and arguments that are not where the program wants
 * them. Programs without devices, called with tensors in main memory, pass through none of it but two tests. */
#include <stdlib.h>
#include <string.h>

#include "execute.h"

static weft_device *device_of(const weft_executable *e, int32_t space) { return space ? e->devices[space - 1] : NULL; }

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* Counts memory before it is allocated, so that runs at the same time cannot exceed the limit together. What does not
 * fit is never counted, not for a moment: a run that fits would be refused because of one that does not. Idle memory
 * is given up first. */
static bool count_bytes(weft_executable *e, int64_t nbytes, weft_error *error) {
    const int64_t limit = atomic_load(&e->memory_limit);
    for (int attempt = 0;; attempt++) {
        int64_t held = atomic_load(&e->held_bytes);
        while (!limit || (nbytes <= limit && held <= limit - nbytes))
            if (atomic_compare_exchange_weak(&e->held_bytes, &held, held + nbytes)) return true;
        if (attempt || !weft_executable_trim(e)) {
            (void)weft_fail(error, WEFT_ERROR_LIMIT, "intermediate results need %lld bytes, and the limit is %lld",
                            (long long)nbytes + (long long)held, (long long)limit);
            return false;
        }
    }
}

void *weft_space_allocate(weft_executable *e, int32_t space, int64_t nbytes, weft_error *error) {
    void *address = NULL;
    if (nbytes < 0 || nbytes > INT64_MAX / 4) {
        (void)weft_fail(error, WEFT_ERROR_MEMORY, "out of memory for intermediate results");
        return NULL;
    }
    if (!count_bytes(e, nbytes, error)) return NULL;
    if (space) {
        (void)weft_device_allocate(e->devices[space - 1], nbytes, &address, error);
    } else {
        address = weft_alloc_large(nbytes);
        if (!address) (void)weft_fail(error, WEFT_ERROR_MEMORY, "out of memory for intermediate results");
    }
    if (!address) atomic_fetch_sub(&e->held_bytes, nbytes);
    return address;
}

void weft_space_free(weft_executable *e, int32_t space, void *address, int64_t nbytes) {
    if (!address) return;
    atomic_fetch_sub(&e->held_bytes, nbytes);
    if (space)
        weft_device_free(e->devices[space - 1], address);
    else
        weft_free(address);
}

int32_t weft_keep(weft_executable *e, int32_t space, kept_memory *m, int64_t nbytes, weft_error *error) {
    if (m->address && nbytes <= m->nbytes) return WEFT_OK;
    weft_error told = {.status = WEFT_ERROR_MEMORY};
    weft_space_free(e, space, m->address, m->nbytes);
    *m = (kept_memory){weft_space_allocate(e, space, nbytes, &told), nbytes};
    if (m->address) return WEFT_OK;
    m->nbytes = 0;
    if (error) *error = told;
    return told.status;
}

/* Says at which instruction a device failed. */
static int32_t failed_at(run *r, int32_t status, int32_t space, int64_t at) {
    if (status && r->error) r->error->index = space, r->error->instruction = at;
    return status;
}

int32_t weft_move(run *r, int32_t to_space, void *to, int32_t from_space, const void *from, int64_t nbytes, int64_t at) {
    const weft_executable *e = r->executable;
    int32_t status = weft_device_copy(device_of(e, to_space), to, device_of(e, from_space), from, nbytes, r->error);
    return failed_at(r, status, to_space ? to_space : from_space, at);
}

/* ---- arguments that are elsewhere -------------------------------------------------------------------------------- */

static bool is_elsewhere(const run *r, const weft_tensor *t, int32_t space) {
    return !t->value && t->device != device_of(r->executable, space);
}

static int32_t start_staging(run *r) {
    frame *f = r->f;
    const size_t ports = (size_t)(r->p->input_count + r->p->output_count) + 1;
    if (!f->staged) f->staged = calloc(ports, sizeof *f->staged);
    if (!f->is_staged) f->is_staged = calloc(ports, sizeof *f->is_staged);
    if (f->staged && f->is_staged) return WEFT_OK;
    return weft_fail_at(r, WEFT_ERROR_MEMORY, -1, -1, "out of memory for arguments");
}

int32_t weft_stage_inputs(run *r) {
    const program *p = r->p;
    if (r->f->is_staged) memset(r->f->is_staged, 0, (size_t)(p->input_count + p->output_count));
    int32_t status = WEFT_OK;
    for (int32_t i = 0; i < p->input_count && !status; i++) {
        const weft_tensor *t = &r->inputs[i];
        const int32_t space = p->inputs[i].space;
        if (WEFT_LIKELY(!is_elsewhere(r, t, space)) || p->inputs[i].is_value) continue;
        int64_t nbytes = p->inputs[i].element_bytes;
        for (int32_t d = 0; d < t->ndim; d++) nbytes *= t->shape[d];
        status = start_staging(r);
        if (!status) status = weft_keep(r->executable, space, &r->f->staged[i], nbytes, r->error);
        if (!status)
            status = weft_device_copy(device_of(r->executable, space), r->f->staged[i].address, t->device, t->data, nbytes,
                                      r->error);
        status = failed_at(r, status, space, -1);
        if (!status) r->f->is_staged[i] = true;
    }
    return status;
}

void *weft_input_address(const run *r, int32_t i) {
    return r->f->is_staged && r->f->is_staged[i] ? r->f->staged[i].address : r->inputs[i].data;
}

int32_t weft_stage_output(run *r, int32_t index, int64_t nbytes, int64_t at) {
    const int32_t space = r->p->outputs[index].space, port = r->p->input_count + index;
    if (WEFT_LIKELY(!is_elsewhere(r, &r->outputs[index], space))) return WEFT_OK;
    int32_t status = start_staging(r);
    if (!status) status = weft_keep(r->executable, space, &r->f->staged[port], nbytes, r->error);
    if (!status) r->f->is_staged[port] = true;
    return failed_at(r, status, space, at);
}

void *weft_output_address(const run *r, int32_t i) {
    const int32_t port = r->p->input_count + i;
    return r->f->is_staged && r->f->is_staged[port] ? r->f->staged[port].address : r->outputs[i].data;
}

int32_t weft_deliver_outputs(run *r) {
    const program *p = r->p;
    int32_t status = WEFT_OK;
    for (int32_t i = 0; r->f->is_staged && i < p->output_count && !status; i++) {
        if (!r->f->is_staged[p->input_count + i]) continue;
        const weft_tensor *t = &r->outputs[i];
        status = weft_device_copy(t->device, t->data, device_of(r->executable, p->outputs[i].space),
                                  weft_output_address(r, i), t->nbytes, r->error);
        status = failed_at(r, status, p->outputs[i].space, -1);
        if (!status && t->device) status = failed_at(r, weft_device_synchronize(t->device, r->error), 0, -1);
    }
    return status;
}

/* ---- launches ---------------------------------------------------------------------------------------------------- */

int32_t weft_launch_kernel(run *r, const instruction *i, int64_t at) {
    const int32_t number = (int32_t)r->p->kernel_devices[i->a];
    int64_t sizes[7];
    int32_t status = WEFT_OK;
    for (int32_t k = 0; k < 7 && !status; k++) status = weft_value_of(r, i->launch[k], at, &sizes[k]);
    for (int32_t k = 0; k < i->size_count && !status; k++)
        status = weft_value_of(r, i->sizes[k], at, &r->f->sizes[i->first_size + k]);
    for (int32_t k = 0; k < i->buffer_count && !status; k++) status = weft_need_buffer(r, (int32_t)i->buffers[k], at);
    if (status) return status;
    for (int32_t k = 0; k < 7; k++)
        if (sizes[k] < 0) return weft_fail_at(r, WEFT_ERROR_ARITHMETIC, -1, at, "the size of a launch is negative");
    for (int32_t k = 0; k < 6; k++)
        if (sizes[k] == 0) return WEFT_OK; /* nothing to compute */
    const weft_launch launch = {{sizes[0], sizes[1], sizes[2]}, {sizes[3], sizes[4], sizes[5]}, sizes[6]};
    status = weft_device_launch(device_of(r->executable, number), r->executable->loaded[i->a], r->f->slots + i->first_slot,
                                i->buffer_count, r->f->sizes + i->first_size, i->size_count, &launch, r->error);
    if (!status && r->profiling) status = weft_device_synchronize(device_of(r->executable, number), r->error);
    return failed_at(r, status, status == WEFT_ERROR_KERNEL ? i->a : number, at);
}

/* Waits for all devices; the first error counts. */
int32_t weft_synchronize(run *r, int32_t status) {
    for (int32_t s = 1; s <= r->p->device_count; s++) {
        int32_t found = weft_device_synchronize(device_of(r->executable, s), status ? NULL : r->error);
        if (!status) status = failed_at(r, found, s, -1);
    }
    return status;
}

/* ---- loading ----------------------------------------------------------------------------------------------------- */

static int32_t upload(weft_executable *e, int32_t buffer, weft_error *error) {
    const program *p = &e->program;
    const buffer_spec *b = &p->buffers[buffer];
    for (int32_t k = 0; k < buffer; k++) {
        const buffer_spec *before = &p->buffers[k];
        if (before->kind != BUFFER_CONSTANT || before->space != b->space || before->index != b->index) continue;
        e->uploaded[buffer] = e->uploaded[k];
        return WEFT_OK;
    }
    weft_device *d = device_of(e, b->space);
    const int64_t nbytes = e->constant_sizes[b->index];
    int32_t status = weft_device_allocate(d, nbytes, &e->uploaded[buffer], error);
    if (status) return status;
    e->owned[buffer] = true;
    return weft_device_copy_in(d, e->uploaded[buffer], e->constant_table[b->index], nbytes, error);
}

int32_t weft_load_devices(weft_executable *e, const weft_parts *parts, weft_error *error) {
    const program *p = &e->program;
    if (!p->device_count) return WEFT_OK;
    e->devices = calloc(parts->device_count, sizeof *e->devices);
    e->loaded = calloc(parts->kernel_count + 1, sizeof *e->loaded);
    e->uploaded = calloc((size_t)p->buffer_count + 1, sizeof *e->uploaded);
    e->owned = calloc((size_t)p->buffer_count + 1, sizeof *e->owned);
    if (!e->devices || !e->loaded || !e->uploaded || !e->owned)
        return weft_fail(error, WEFT_ERROR_MEMORY, "out of memory while loading a program");
    for (int32_t i = 0; i < p->device_count; i++) e->devices[i] = weft_device_retain(parts->devices[i]);
    int32_t status = WEFT_OK;
    for (int32_t k = 0; k < p->kernel_count && !status; k++) {
        const weft_kernel_code *c = &parts->kernels[k];
        weft_device *d = device_of(e, (int32_t)p->kernel_devices[k]);
        if (d && !c->code) status = weft_fail(error, WEFT_ERROR_PROGRAM, "malformed program: a kernel is missing");
        else if (d) status = weft_device_load(d, c->format, c->code, c->code_bytes, c->entry, &e->loaded[k], error);
    }
    for (int32_t i = 0; i < p->buffer_count && !status; i++)
        if (p->buffers[i].kind == BUFFER_CONSTANT && p->buffers[i].space) status = upload(e, i, error);
    for (int32_t i = 0; i < p->device_count && !status; i++) status = weft_device_synchronize(e->devices[i], error);
    return status;
}

void weft_unload_devices(weft_executable *e) {
    const program *p = &e->program;
    for (int32_t i = 0; e->owned && i < p->buffer_count; i++)
        if (e->owned[i]) weft_device_free(device_of(e, p->buffers[i].space), e->uploaded[i]);
    for (int32_t k = 0; e->loaded && k < p->kernel_count; k++)
        if (e->loaded[k]) weft_device_unload(device_of(e, (int32_t)p->kernel_devices[k]), e->loaded[k]);
    for (int32_t i = 0; e->devices && i < p->device_count; i++) weft_device_release(e->devices[i]);
    free(e->devices);
    free(e->loaded);
    free(e->uploaded);
    free(e->owned);
}
