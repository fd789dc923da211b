/* Applying one relocation. */
#ifndef WEFT_RELOCATE_H
#define WEFT_RELOCATE_H

#include "elf.h"
#include "internal.h"

/* What a relocation may refer to, gathered by the loader. */
typedef struct relocation {
    uint32_t type;
    unsigned char *place;  /* bytes to change; `room` of them may be */
    uint64_t room;
    uint64_t place_address; /* P */
    uint64_t symbol;        /* S */
    int64_t addend;         /* A */
    uint64_t stub;          /* code within reach that jumps to S, or S itself */
    uint64_t got;           /* address of a word that holds S, or 0 where none was asked for */
    uint64_t got_start;     /* address of the first such word */
    bool is_function;       /* S is the address of a function */
    const struct relocation *partner; /* the relocation at address S, where the type names one */
} relocation;

typedef enum relocation_result { RELOCATED, UNKNOWN_RELOCATION, OUT_OF_RANGE, OUT_OF_ROOM, NO_PARTNER, OTHER_STATE }
    relocation_result;

/* One machine's relocations. `needs_got` tells whether a type refers to a GOT word; `write_stub` writes a jump to an
 * absolute address, at most STUB_BYTES long. Where an address is made by two instructions, the relocation of the second
 * may name the place of the first (`names_partner`), which has a relocation of its own (`is_partner`); both are NULL where
 * a machine has no such types. */
typedef struct relocator {
    uint16_t machine;
    const char *name;
    const elf_format *format;
    bool (*needs_got)(uint32_t type);
    bool (*is_absolute_32)(uint32_t type); /* needs code in the low 2 GiB */
    void (*write_stub)(unsigned char *place, uint64_t target);
    relocation_result (*apply)(const relocation *r);
    bool (*names_partner)(uint32_t type);
    bool (*is_partner)(uint32_t type);
} relocator;

enum { STUB_BYTES = 32 };

extern const relocator weft_x86_64_relocator, weft_aarch64_relocator, weft_riscv64_relocator,
    weft_arm_relocator;

#endif
