/* Counts the memory of Python objects and of extensions, and refuses one allocation on request. It needs no header of
 * Python: the functions below have been the same since Python 3.5. The domain of raw memory is left alone, which threads
 * use that do not hold the interpreter's lock. */
#include <stddef.h>

typedef struct {
    void *context;
    void *(*malloc)(void *context, size_t size);
    void *(*calloc)(void *context, size_t count, size_t size);
    void *(*realloc)(void *context, void *old, size_t size);
    void (*free)(void *context, void *old);
} allocator;

void PyMem_GetAllocator(int domain, allocator *found);
void PyMem_SetAllocator(int domain, allocator *given);
void *PyObject_CallObject(void *callable, void *arguments);

enum { MEMORY = 1, OBJECTS = 2 };

static allocator real[3];
static long blocks;       /* allocated and not freed since `hook` */
static long count;        /* of allocations since `attempt` began */
static long refused = -1; /* the number of the one that fails */
static long counted;      /* of the last attempt */

static int is_refused(void) { return count++ == refused; }

static void *new_block(void *context, size_t size) {
    const allocator *a = context;
    void *made = is_refused() ? NULL : a->malloc(a->context, size);
    blocks += made != NULL;
    return made;
}

static void *new_zeros(void *context, size_t number, size_t size) {
    const allocator *a = context;
    void *made = is_refused() ? NULL : a->calloc(a->context, number, size);
    blocks += made != NULL;
    return made;
}

static void *resized(void *context, void *old, size_t size) {
    const allocator *a = context;
    void *made = is_refused() ? NULL : a->realloc(a->context, old, size);
    blocks += made && !old;
    return made;
}

static void freed(void *context, void *old) {
    const allocator *a = context;
    blocks -= old != NULL;
    a->free(a->context, old);
}

void hook(void) {
    for (int domain = MEMORY; domain <= OBJECTS; domain++) {
        allocator ours = {&real[domain], new_block, new_zeros, resized, freed};
        PyMem_GetAllocator(domain, &real[domain]);
        PyMem_SetAllocator(domain, &ours);
    }
}

/* Calls an object; allocation number `which` fails, from 0 on (none, if it is negative). */
void *attempt(void *callable, long which) {
    count = 0;
    refused = which;
    void *made = PyObject_CallObject(callable, NULL);
    refused = -1;
    counted = count;
    return made;
}

long allocations_of_the_attempt(void) { return counted; }
long blocks_in_use(void) { return blocks; }
