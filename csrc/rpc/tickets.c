/* The tickets of leases. */
#define _GNU_SOURCE
#include "tickets.h"

#include <string.h>
#include <sys/mman.h>

#include "sha256.h"
#include "weft_runtime.h"

rpc_tickets *rpc_tickets_new(void) {
    void *made = mmap(NULL, sizeof(rpc_tickets), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return made == MAP_FAILED ? NULL : made;
}

void rpc_tickets_free(rpc_tickets *t) { (void)munmap(t, sizeof *t); }

bool rpc_tickets_grant(rpc_tickets *t, uint64_t lease, const unsigned char bytes[RPC_TICKET], int64_t expires) {
    for (size_t i = 0; i < RPC_MAX_TICKETS; i++) {
        rpc_ticket *one = &t->items[i];
        int64_t expected = RPC_TICKET_FREE;
        if (!atomic_compare_exchange_strong(&one->state, &expected, RPC_TICKET_MADE)) continue;
        atomic_store(&one->ending, false);
        one->lease = lease;
        one->expires = expires;
        memcpy(one->bytes, bytes, RPC_TICKET);
        atomic_store(&one->state, RPC_TICKET_GRANTED);
        return true;
    }
    return false;
}

bool rpc_tickets_end(rpc_tickets *t, uint64_t lease) {
    for (size_t i = 0; i < RPC_MAX_TICKETS; i++) {
        rpc_ticket *one = &t->items[i];
        int64_t expected = RPC_TICKET_GRANTED;
        if (atomic_load(&one->state) == RPC_TICKET_FREE || one->lease != lease) continue;
        if (atomic_compare_exchange_strong(&one->state, &expected, RPC_TICKET_FREE)) return false;
        atomic_store(&one->ending, true);
        return true;
    }
    return false;
}

bool rpc_tickets_use(rpc_tickets *t, const unsigned char bytes[RPC_TICKET], pid_t process) {
    for (size_t i = 0; i < RPC_MAX_TICKETS; i++) {
        rpc_ticket *one = &t->items[i];
        int64_t expected = RPC_TICKET_GRANTED;
        if (atomic_load(&one->state) != RPC_TICKET_GRANTED || !rpc_equal(one->bytes, bytes, RPC_TICKET)) continue;
        if (!atomic_compare_exchange_strong(&one->state, &expected, process)) return false;
        /* Its place may have passed to another lease since it was compared; nobody else changes it from here on. */
        if (rpc_equal(one->bytes, bytes, RPC_TICKET) && weft_nanoseconds() <= one->expires) return true;
        atomic_store(&one->state, atomic_load(&one->ending) ? RPC_TICKET_FREE : RPC_TICKET_GRANTED);
        return false;
    }
    return false;
}

void rpc_tickets_finished(rpc_tickets *t, pid_t process) {
    for (size_t i = 0; i < RPC_MAX_TICKETS; i++) {
        int64_t expected = process;
        (void)atomic_compare_exchange_strong(&t->items[i].state, &expected, RPC_TICKET_FREE);
    }
}

bool rpc_tickets_must_end(const rpc_tickets *t, pid_t process) {
    for (size_t i = 0; i < RPC_MAX_TICKETS; i++)
        if (atomic_load(&t->items[i].state) == process && atomic_load(&t->items[i].ending)) return true;
    return false;
}

size_t rpc_tickets_held(rpc_tickets *t, uint64_t leases[RPC_MAX_TICKETS]) {
    size_t count = 0;
    for (size_t i = 0; i < RPC_MAX_TICKETS; i++) {
        rpc_ticket *one = &t->items[i];
        int64_t expected = RPC_TICKET_GRANTED;
        if (atomic_load(&one->state) == RPC_TICKET_GRANTED && weft_nanoseconds() > one->expires)
            (void)atomic_compare_exchange_strong(&one->state, &expected, RPC_TICKET_FREE);
        if (atomic_load(&one->state) != RPC_TICKET_FREE) leases[count++] = one->lease;
    }
    return count;
}
