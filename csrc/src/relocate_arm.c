/* Relocations of 32-bit Arm (ELF for the Arm Architecture, section 5.6), in Arm and in Thumb code.
 *
 * Addends are in the places that are changed. The lowest bit of a function's address says that its code is Thumb (T in the
 * document); a call changes between the two instruction sets where it must, a jump cannot. Addresses have 32 bits and wrap
 * around. Objects loaded for inspection on a 64-bit machine may refer to what lies beyond: where only the distance
 * counts, it is the one that must fit. */
#include <string.h>

#include "relocate.h"

enum {
    R_NONE = 0,
    R_PC24 = 1,
    R_ABS32 = 2,
    R_REL32 = 3,
    R_THM_CALL = 10,
    R_GOTOFF32 = 24,
    R_BASE_PREL = 25,
    R_GOT_BREL = 26,
    R_PLT32 = 27,
    R_CALL = 28,
    R_JUMP24 = 29,
    R_THM_JUMP24 = 30,
    R_TARGET1 = 38,
    R_V4BX = 40,
    R_PREL31 = 42,
    R_MOVW_ABS_NC = 43,
    R_MOVT_ABS = 44,
    R_MOVW_PREL_NC = 45,
    R_MOVT_PREL = 46,
    R_THM_MOVW_ABS_NC = 47,
    R_THM_MOVT_ABS = 48,
    R_THM_MOVW_PREL_NC = 49,
    R_THM_MOVT_PREL = 50,
    R_THM_JUMP19 = 51,
    R_GOT_PREL = 96
};

enum { THUMB_STUB = 8 }; /* where the part of a stub for Thumb code begins */

static bool needs_got(uint32_t type) { return type == R_GOT_BREL || type == R_GOT_PREL; }

/* All addresses have 32 bits, on a 64-bit machine too as far as the system gives such memory. */
static bool is_absolute_32(uint32_t type) { return (void)type, true; }

/* Arm: ldr pc, [pc, #-4]; .word target. Thumb: ldr.w pc, [pc]; .word target. Both go to Thumb code if the lowest bit of
 * the target says so. */
static void write_stub(unsigned char *place, uint64_t target) {
    const uint32_t words[] = {0xe51ff004u, (uint32_t)target, 0xf000f8dfu, (uint32_t)target};
    memcpy(place, words, sizeof words);
}

static bool fits(int64_t value, int bits) { return value >= -((int64_t)1 << (bits - 1)) && value < (int64_t)1 << (bits - 1); }

static int64_t extended(uint32_t value, int bits) { return (int64_t)((uint64_t)value << (64 - bits)) >> (64 - bits); }

static uint32_t bits(uint32_t value, int from, int count) { return value >> from & ((1u << count) - 1); }

static uint32_t word_at(const relocation *r) {
    uint32_t word;
    memcpy(&word, r->place, 4);
    return word;
}

static relocation_result write_word(const relocation *r, uint32_t word) {
    memcpy(r->place, &word, 4);
    return RELOCATED;
}

/* S without the bit that marks Thumb code, and that bit. */
static uint64_t symbol_of(const relocation *r) { return r->is_function ? r->symbol & ~(uint64_t)1 : r->symbol; }
static uint64_t thumb_bit(const relocation *r) { return r->is_function ? r->symbol & 1 : 0; }

static int64_t difference(uint64_t to, uint64_t from) {
    bool narrow = to >> 32 == 0 && from >> 32 == 0;
    return narrow ? (int32_t)((uint32_t)to - (uint32_t)from) : (int64_t)(to - from);
}

/* ---- data -------------------------------------------------------------------------------------------------------- */

static relocation_result absolute(const relocation *r) {
    uint64_t address = symbol_of(r);
    if (address >> 32) return OUT_OF_RANGE;
    return write_word(r, ((uint32_t)address + word_at(r)) | (uint32_t)thumb_bit(r));
}

static relocation_result relative(const relocation *r, uint64_t to, uint64_t thumb, uint64_t from) {
    int64_t value = difference(to, from) + (int32_t)word_at(r);
    if ((to | from) >> 32 && !fits(value, 32)) return OUT_OF_RANGE;
    return write_word(r, (uint32_t)value | (uint32_t)thumb);
}

/* 31 bits; the highest one is not of the address. */
static relocation_result relative_31(const relocation *r) {
    uint32_t word = word_at(r);
    int64_t value = difference(symbol_of(r), r->place_address) + extended(word, 31);
    if (!fits(value, 31)) return OUT_OF_RANGE;
    return write_word(r, (word & 0x80000000u) | (((uint32_t)value | (uint32_t)thumb_bit(r)) & 0x7fffffffu));
}

/* ---- halves of addresses in movw and movt ------------------------------------------------------------------------ */

/* A word of Thumb code holds the first half of the instruction in its low bits. */
static uint32_t read_half(uint32_t word, bool thumb) {
    if (!thumb) return bits(word, 16, 4) << 12 | bits(word, 0, 12);
    return bits(word, 0, 4) << 12 | bits(word, 10, 1) << 11 | bits(word, 28, 3) << 8 | bits(word, 16, 8);
}

static uint32_t with_half(uint32_t word, uint32_t half, bool thumb) {
    if (!thumb) return (word & 0xfff0f000u) | bits(half, 12, 4) << 16 | bits(half, 0, 12);
    return (word & 0x8f00fbf0u) | bits(half, 12, 4) | bits(half, 11, 1) << 10 | bits(half, 8, 3) << 28 |
           bits(half, 0, 8) << 16;
}

static relocation_result half(const relocation *r, uint64_t from, bool high, bool thumb) {
    uint32_t word = word_at(r);
    uint64_t address = symbol_of(r);
    if (!from && address >> 32) return OUT_OF_RANGE;
    int64_t value = difference(address, from) + extended(read_half(word, thumb), 16);
    if (from && (address | from) >> 32 && !fits(value, 32)) return OUT_OF_RANGE;
    uint32_t whole = (uint32_t)value | (high ? 0 : (uint32_t)thumb_bit(r));
    return write_word(r, with_half(word, high ? whole >> 16 : whole & 0xffff, thumb));
}

/* ---- branches ---------------------------------------------------------------------------------------------------- */

/* Where a branch goes, and whether that is Thumb code: into the part of a stub for the state of the branch. */
static uint64_t branch_target(const relocation *r, bool from_thumb, bool *to_thumb) {
    if (r->stub != r->symbol) return *to_thumb = from_thumb, r->stub + (from_thumb ? THUMB_STUB : 0);
    return *to_thumb = thumb_bit(r), symbol_of(r);
}

/* bl, blx, b and their conditions in Arm code. */
static relocation_result branch(const relocation *r) {
    uint32_t word = word_at(r);
    bool exchanges = word >> 25 == 0x7d, calls = exchanges || word >> 24 == 0xeb, to_thumb;
    uint64_t target = branch_target(r, false, &to_thumb);
    if (to_thumb && !calls) return OTHER_STATE;
    int64_t addend = extended(word & 0xffffff, 24) * 4 + (exchanges ? bits(word, 24, 1) * 2 : 0);
    int64_t value = difference(target, r->place_address) + addend;
    if (!fits(value, 26) || value & (to_thumb ? 1 : 3)) return OUT_OF_RANGE;
    uint32_t code = to_thumb ? 0xfa000000u | bits((uint32_t)value, 1, 1) << 24 : exchanges ? 0xeb000000u : word & 0xff000000u;
    return write_word(r, code | bits((uint32_t)value, 2, 24));
}

/* bl, blx and b.w in Thumb code: a sign, two bits that are stored as exclusive or with it, 10 and 11 bits. */
static relocation_result thumb_branch(const relocation *r) {
    enum { LINKS = 1 << 30, STAYS = 1 << 28 }; /* in the second half; without the latter, bl is blx */
    uint32_t word = word_at(r), sign = bits(word, 10, 1);
    uint32_t i1 = !(bits(word, 29, 1) ^ sign), i2 = !(bits(word, 27, 1) ^ sign);
    uint32_t old = sign << 24 | i1 << 23 | i2 << 22 | bits(word, 0, 10) << 12 | bits(word, 16, 11) << 1;
    bool to_thumb;
    uint64_t target = branch_target(r, true, &to_thumb);
    if (!to_thumb && !(word & LINKS)) return OTHER_STATE;
    int64_t value = difference(target, r->place_address) + extended(old, 25);
    if (!to_thumb) value = (value + 3) & ~(int64_t)3; /* blx counts from a multiple of four */
    if (!fits(value, 25) || value & 1) return OUT_OF_RANGE;
    uint32_t v = (uint32_t)value, s = bits(v, 24, 1);
    word &= 0xd000f800u;
    if (word & LINKS) word = to_thumb ? word | STAYS : word & ~(uint32_t)STAYS;
    return write_word(r, word | s << 10 | bits(v, 12, 10) | (uint32_t)!(bits(v, 23, 1) ^ s) << 29 |
                             (uint32_t)!(bits(v, 22, 1) ^ s) << 27 | bits(v, 1, 11) << 16);
}

/* b.w with a condition, in Thumb code. */
static relocation_result conditional_branch(const relocation *r) {
    uint32_t word = word_at(r);
    uint32_t old = bits(word, 10, 1) << 20 | bits(word, 27, 1) << 19 | bits(word, 29, 1) << 18 | bits(word, 0, 6) << 12 |
                   bits(word, 16, 11) << 1;
    bool to_thumb;
    uint64_t target = branch_target(r, true, &to_thumb);
    if (!to_thumb) return OTHER_STATE;
    int64_t value = difference(target, r->place_address) + extended(old, 21);
    if (!fits(value, 21) || value & 1) return OUT_OF_RANGE;
    uint32_t v = (uint32_t)value;
    return write_word(r, (word & 0xd000fbc0u) | bits(v, 20, 1) << 10 | bits(v, 19, 1) << 27 | bits(v, 18, 1) << 29 |
                             bits(v, 12, 6) | bits(v, 1, 11) << 16);
}

static relocation_result apply(const relocation *r) {
    if (r->type == R_NONE || r->type == R_V4BX) return RELOCATED;
    if (r->room < 4) return OUT_OF_ROOM;
    switch (r->type) {
    case R_ABS32:
    case R_TARGET1: return absolute(r);
    case R_REL32: return relative(r, symbol_of(r), thumb_bit(r), r->place_address);
    case R_BASE_PREL: return relative(r, r->got_start, 0, r->place_address);
    case R_GOTOFF32: return relative(r, symbol_of(r), thumb_bit(r), r->got_start);
    case R_GOT_BREL: return relative(r, r->got, 0, r->got_start);
    case R_GOT_PREL: return relative(r, r->got, 0, r->place_address);
    case R_PREL31: return relative_31(r);
    case R_MOVW_ABS_NC: return half(r, 0, false, false);
    case R_MOVT_ABS: return half(r, 0, true, false);
    case R_MOVW_PREL_NC: return half(r, r->place_address, false, false);
    case R_MOVT_PREL: return half(r, r->place_address, true, false);
    case R_THM_MOVW_ABS_NC: return half(r, 0, false, true);
    case R_THM_MOVT_ABS: return half(r, 0, true, true);
    case R_THM_MOVW_PREL_NC: return half(r, r->place_address, false, true);
    case R_THM_MOVT_PREL: return half(r, r->place_address, true, true);
    case R_PC24:
    case R_PLT32:
    case R_CALL:
    case R_JUMP24: return branch(r);
    case R_THM_CALL:
    case R_THM_JUMP24: return thumb_branch(r);
    case R_THM_JUMP19: return conditional_branch(r);
    default: return UNKNOWN_RELOCATION;
    }
}

const relocator weft_arm_relocator = {
    ELF_ARM, "32-bit Arm", &weft_elf_32, needs_got, is_absolute_32, write_stub, apply, NULL, NULL,
};
