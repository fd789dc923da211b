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
    union {
        int64_t tag;          /* data: the constructor; closures: the function */
        weft_value **link;    /* borrowed tensors: what points to this one in the list of its run; NULL: not borrowed */
    };
    int64_t nbytes;
    union {
        void *data;    /* of a tensor */
        void *payload; /* the host's */
    };
    weft_value *owner; /* whose memory a view shows; NULL: its own, or memory that nobody here owns (borrowed) */
    union {
        void (*release)(void *payload); /* foreign values */
        weft_value *next_borrowed;
    };
    union {
        int64_t shape[1]; /* `count` of them */
        weft_value *fields[1];
    };
};

/* A tensor whose elements are in the memory of `owner`. If that is NULL, or borrowed itself, the tensor is *borrowed*: its
 * memory belongs to the caller of a run. It is entered in `list` then, until it is released or the run ends. */
weft_value *weft_value_view(int32_t rank, const int64_t *shape, int64_t nbytes, void *data, weft_value *owner,
                            weft_value **list);
/* Gives all tensors of a list memory of their own, so that they may outlive the run. False if memory is exhausted: the
 * tensors that got none are empty. */
bool weft_own_borrowed(weft_value **list);
/* Whether `v` is a tensor with elements of its own to which nothing else refers: only then may they still be written. */
bool weft_value_is_own(const weft_value *v);

#endif
