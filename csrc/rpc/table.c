/* What a session owns: blocks of memory by address, code and executables by number.
 *
 * Addresses ascend and are never given out again, and there is a gap behind each block: a client that uses an address
 * after it is freed, or beyond its end, gets an error and not another block. */
#include <stdlib.h>
#include <string.h>

#include "session.h"

enum { FIRST_ADDRESS = 1 << 16, PAGE = 4096 };

/* Room for one more item; false: out of memory. */
static bool grow(void *items, size_t count, size_t *room, size_t bytes) {
    void **array = items;
    if (count < *room) return true;
    void *larger = realloc(*array, (2 * *room + 16) * bytes);
    if (!larger) return false;
    *array = larger;
    *room = 2 * *room + 16;
    return true;
}

uint64_t rpc_add_block(rpc_session *s, void *memory, int64_t nbytes) {
    void *items = s->blocks;
    const bool fits = grow(&items, s->block_count, &s->block_room, sizeof *s->blocks);
    s->blocks = items;
    if (!fits) return 0;
    if (!s->next_address) s->next_address = FIRST_ADDRESS;
    const uint64_t address = s->next_address;
    s->next_address += ((uint64_t)nbytes + PAGE - 1) / PAGE * PAGE + PAGE;
    s->blocks[s->block_count++] = (rpc_block){.address = address, .nbytes = nbytes, .memory = memory};
    return address;
}

rpc_block *rpc_find_block(const rpc_session *s, uint64_t address) {
    size_t low = 0, high = s->block_count; /* the last block that begins at or before the address is below `high` */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (s->blocks[middle].address <= address) low = middle + 1;
        else high = middle;
    }
    if (!low) return NULL;
    rpc_block *b = &s->blocks[low - 1];
    return address - b->address <= (uint64_t)b->nbytes ? b : NULL;
}

char *rpc_find_range(const rpc_session *s, uint64_t address, uint64_t nbytes) {
    const rpc_block *b = rpc_find_block(s, address);
    if (!b) return NULL;
    const uint64_t offset = address - b->address;
    return nbytes <= (uint64_t)b->nbytes - offset ? b->memory + offset : NULL;
}

void rpc_remove_block(rpc_session *s, rpc_block *block) {
    const size_t at = (size_t)(block - s->blocks);
    weft_free(block->memory);
    s->block_count--;
    memmove(block, block + 1, (s->block_count - at) * sizeof *block);
}

uint32_t rpc_add_object(rpc_objects *all, void *object) {
    void *items = all->items;
    const bool fits = grow(&items, all->count, &all->room, sizeof *all->items);
    all->items = items;
    if (!fits || all->last == UINT32_MAX) return 0;
    all->items[all->count++] = (rpc_object){.number = ++all->last, .object = object};
    return all->last;
}

rpc_object *rpc_find_object(const rpc_objects *all, uint32_t number) {
    size_t low = 0, high = all->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (all->items[middle].number < number) low = middle + 1;
        else high = middle;
    }
    return low < all->count && all->items[low].number == number ? &all->items[low] : NULL;
}

void rpc_remove_object(rpc_objects *all, rpc_object *object) {
    const size_t at = (size_t)(object - all->items);
    all->count--;
    memmove(object, object + 1, (all->count - at) * sizeof *object);
}
