/* Values with reference counts: tensors that outlive the function that made them, data of algebraic types, closures, and
 * values that only the host can read (string tensors). Values are immutable, so there are no cycles and reference counts
 * are sufficient. Releasing a long list or a deep tree uses no stack. */
#include "values.h"

#include <string.h>

enum { LARGE = 4 << 20 };

static size_t tensor_header(int32_t rank) {
    size_t bytes = sizeof(weft_value) + (size_t)rank * sizeof(int64_t);
    return (bytes + WEFT_ALIGN - 1) / WEFT_ALIGN * WEFT_ALIGN;
}

static weft_value *start(void *memory, weft_value_kind kind, int32_t count) {
    weft_value *v = memory;
    if (!v) return NULL;
    atomic_init(&v->references, 1);
    v->kind = kind;
    v->count = count;
    if (kind == WEFT_VALUE_DATA) v->tag = 0;
    else v->link = NULL;
    v->nbytes = 0;
    v->data = NULL;
    v->owner = NULL;
    if (kind == WEFT_VALUE_FOREIGN) v->release = NULL;
    else v->next_borrowed = NULL;
    return v;
}

static bool is_shape(int32_t rank, const int64_t *shape) {
    bool fits = rank >= 0 && rank <= WEFT_MAX_RANK;
    for (int32_t i = 0; i < rank && fits; i++) fits = shape[i] >= 0;
    return fits;
}

weft_value *weft_value_tensor(int32_t rank, const int64_t *shape, int64_t nbytes) {
    if (!is_shape(rank, shape) || nbytes < 0 || nbytes > INT64_MAX - 4096) return NULL;
    size_t header = tensor_header(rank);
    int64_t bytes = (int64_t)header + nbytes;
    weft_value *v = start(bytes >= LARGE ? weft_alloc_large(bytes) : weft_alloc(bytes), WEFT_VALUE_TENSOR, rank);
    if (!v) return NULL;
    v->nbytes = nbytes;
    v->data = (char *)v + header;
    if (rank) memcpy(v->shape, shape, (size_t)rank * sizeof *shape);
    return v;
}

static bool is_borrowed(const weft_value *v) { return v->kind == WEFT_VALUE_TENSOR && v->link; }

bool weft_value_is_own(const weft_value *v) {
    return v->kind == WEFT_VALUE_TENSOR && !v->owner && !v->link && atomic_load(&v->references) == 1;
}

static void unlink_borrowed(weft_value *v) {
    *v->link = v->next_borrowed;
    if (v->next_borrowed) v->next_borrowed->link = v->link;
    v->link = NULL;
    v->next_borrowed = NULL;
}

bool weft_own_borrowed(weft_value **list) {
    bool all = true;
    while (*list) {
        weft_value *v = *list, *copy = weft_value_tensor(v->count, v->shape, v->nbytes), *before = v->owner;
        unlink_borrowed(v);
        if (copy && v->nbytes) memcpy(copy->data, v->data, (size_t)v->nbytes);
        if (!copy) v->nbytes = 0;
        v->data = copy ? copy->data : NULL;
        v->owner = copy;
        all &= copy != NULL;
        weft_value_release(before);
    }
    return all;
}

weft_value *weft_value_view(int32_t rank, const int64_t *shape, int64_t nbytes, void *data, weft_value *owner,
                            weft_value **list) {
    if (!is_shape(rank, shape) || nbytes < 0) return NULL;
    weft_value *v = start(weft_alloc_small((int64_t)tensor_header(rank)), WEFT_VALUE_TENSOR, rank);
    if (!v) return NULL;
    v->nbytes = nbytes;
    v->data = data;
    v->owner = owner ? weft_value_retain(owner) : NULL;
    if (!owner || is_borrowed(owner)) {
        v->next_borrowed = *list;
        v->link = list;
        if (*list) (*list)->link = &v->next_borrowed;
        *list = v;
    }
    if (rank) memcpy(v->shape, shape, (size_t)rank * sizeof *shape);
    return v;
}

weft_value *weft_value_data(int64_t tag, int32_t count, weft_value *const *fields) {
    if (count < 0) return NULL;
    weft_value *v = start(weft_alloc_small((int64_t)(sizeof(weft_value) + (size_t)count * sizeof(weft_value *))),
                          WEFT_VALUE_DATA, count);
    if (!v) return NULL;
    v->tag = tag;
    for (int32_t i = 0; i < count; i++) v->fields[i] = weft_value_retain(fields[i]);
    return v;
}

weft_value *weft_value_foreign(void *payload, void (*release)(void *), int32_t rank, const int64_t *shape) {
    if (!is_shape(rank, shape)) return NULL;
    weft_value *v = start(weft_alloc_small((int64_t)tensor_header(rank)), WEFT_VALUE_FOREIGN, rank);
    if (!v) return NULL;
    v->payload = payload;
    v->release = release;
    if (rank) memcpy(v->shape, shape, (size_t)rank * sizeof *shape);
    return v;
}

weft_value *weft_value_retain(weft_value *value) {
    atomic_fetch_add_explicit(&value->references, 1, memory_order_relaxed);
    return value;
}

/* Releases one reference; true if it was the last. */
static bool drop(weft_value *v) {
    if (atomic_fetch_sub_explicit(&v->references, 1, memory_order_release) != 1) return false;
    (void)atomic_load_explicit(&v->references, memory_order_acquire); /* not a fence: thread sanitizers know none */
    return true;
}

void weft_value_release(weft_value *value) {
    weft_value *dead = value && drop(value) ? value : NULL; /* linked through `next`, in the place of the count */
    if (dead) dead->next = NULL;
    while (dead) {
        weft_value *v = dead;
        dead = v->next;
        if (is_borrowed(v)) unlink_borrowed(v);
        int32_t count = v->kind == WEFT_VALUE_DATA ? v->count : v->owner ? 1 : 0;
        weft_value **parts = v->kind == WEFT_VALUE_DATA ? v->fields : &v->owner;
        if (v->kind == WEFT_VALUE_FOREIGN) {
            count = 0;
            if (v->release) v->release(v->payload);
        }
        for (int32_t i = 0; i < count; i++) {
            if (!drop(parts[i])) continue;
            parts[i]->next = dead;
            dead = parts[i];
        }
        weft_free(v);
    }
}

weft_value_kind weft_value_kind_of(const weft_value *value) { return value->kind; }
int64_t weft_value_tag(const weft_value *value) { return value->kind == WEFT_VALUE_DATA ? value->tag : 0; }
int32_t weft_value_count(const weft_value *value) { return value->count; }
const int64_t *weft_value_shape(const weft_value *value) { return value->kind == WEFT_VALUE_DATA ? NULL : value->shape; }
int64_t weft_value_nbytes(const weft_value *value) { return value->nbytes; }
void *weft_value_payload(const weft_value *value) { return value->kind == WEFT_VALUE_DATA ? NULL : value->payload; }

weft_value *weft_value_field(const weft_value *value, int32_t index) {
    return value->kind == WEFT_VALUE_DATA && index >= 0 && index < value->count ? value->fields[index] : NULL;
}
