/* Relocations of x86-64 (System V ABI, AMD64 supplement, section 4.4). */
#include <string.h>

#include "relocate.h"

enum {
    R_NONE = 0,
    R_64 = 1,
    R_PC32 = 2,
    R_PLT32 = 4,
    R_GOTPCREL = 9,
    R_32 = 10,
    R_32S = 11,
    R_PC64 = 24,
    R_GOTPCRELX = 41,
    R_REX_GOTPCRELX = 42
};

static bool needs_got(uint32_t type) { return type == R_GOTPCREL || type == R_GOTPCRELX || type == R_REX_GOTPCRELX; }
static bool is_absolute_32(uint32_t type) { return type == R_32 || type == R_32S; }

/* jmp *0(%rip); .quad target */
static void write_stub(unsigned char *place, uint64_t target) {
    static const unsigned char jump[] = {0xff, 0x25, 0, 0, 0, 0};
    memcpy(place, jump, sizeof jump);
    memcpy(place + sizeof jump, &target, sizeof target);
}

static relocation_result write_64(const relocation *r, uint64_t value) {
    if (r->room < 8) return OUT_OF_ROOM;
    memcpy(r->place, &value, 8);
    return RELOCATED;
}

static relocation_result write_32(const relocation *r, uint64_t value, bool is_signed) {
    if (r->room < 4) return OUT_OF_ROOM;
    if (is_signed ? (int64_t)value != (int32_t)value : value != (uint32_t)value) return OUT_OF_RANGE;
    uint32_t word = (uint32_t)value;
    memcpy(r->place, &word, 4);
    return RELOCATED;
}

static relocation_result apply(const relocation *r) {
    uint64_t addend = (uint64_t)r->addend;
    switch (r->type) {
    case R_NONE: return RELOCATED;
    case R_64: return write_64(r, r->symbol + addend);
    case R_PC64: return write_64(r, r->symbol + addend - r->place_address);
    case R_32: return write_32(r, r->symbol + addend, false);
    case R_32S: return write_32(r, r->symbol + addend, true);
    case R_PC32:
    case R_PLT32: return write_32(r, r->stub + addend - r->place_address, true);
    case R_GOTPCREL:
    case R_GOTPCRELX:
    case R_REX_GOTPCRELX: return write_32(r, r->got + addend - r->place_address, true);
    default: return UNKNOWN_RELOCATION;
    }
}

const relocator weft_x86_64_relocator = {
    ELF_X86_64, "x86-64", &weft_elf_64, needs_got, is_absolute_32, write_stub, apply, NULL, NULL,
};
