/* The representation of values. */
#ifndef WEFT_VALUES_H
#define WEFT_VALUES_H

#include <stdatomic.h>

#include "internal.h"

struct weft_value {
    union {
        _Atomic int64_t references;
        weft_value *next; /* of values about to be freed */
    };
    weft_value_kind kind;
    int32_t count; /* dimensions, or fields */
    int64_t tag;   /* data: the constructor; closures: the function */
    int64_t nbytes;
    union {
        void *data;    /* of a tensor */
        void *payload; /* the host's */
    };
    weft_value *owner; /* whose memory a view shows; NULL: its own, or memory that lives longer than the run */
    void (*release)(void *payload);
    union {
        int64_t shape[1]; /* `count` of them */
        weft_value *fields[1];
    };
};

/* A tensor whose elements are in the memory of `owner` or, if that is NULL, in memory that outlives the tensor. */
weft_value *weft_value_view(int32_t rank, const int64_t *shape, int64_t nbytes, void *data, weft_value *owner);

#endif
