/* Relocations of AArch64 (ELF for the Arm 64-bit Architecture, section 5.7). */
#include <string.h>

#include "relocate.h"

enum {
    R_NONE = 0,
    R_NONE_256 = 256,
    R_ABS64 = 257,
    R_ABS32 = 258,
    R_PREL64 = 260,
    R_PREL32 = 261,
    R_MOVW_UABS_G0 = 263,
    R_MOVW_UABS_G3 = 269,
    R_LD_PREL_LO19 = 273,
    R_ADR_PREL_LO21 = 274,
    R_ADR_PREL_PG_HI21 = 275,
    R_ADR_PREL_PG_HI21_NC = 276,
    R_ADD_ABS_LO12_NC = 277,
    R_LDST8_ABS_LO12_NC = 278,
    R_TSTBR14 = 279,
    R_CONDBR19 = 280,
    R_JUMP26 = 282,
    R_CALL26 = 283,
    R_LDST16_ABS_LO12_NC = 284,
    R_LDST32_ABS_LO12_NC = 285,
    R_LDST64_ABS_LO12_NC = 286,
    R_LDST128_ABS_LO12_NC = 299,
    R_ADR_GOT_PAGE = 311,
    R_LD64_GOT_LO12_NC = 312,
    R_PLT32 = 314
};

static bool needs_got(uint32_t type) { return type == R_ADR_GOT_PAGE || type == R_LD64_GOT_LO12_NC; }
static bool is_absolute_32(uint32_t type) { return type == R_ABS32; }

/* ldr x16, #8; br x16; .quad target */
static void write_stub(unsigned char *place, uint64_t target) {
    static const uint32_t jump[] = {0x58000050u, 0xd61f0200u};
    memcpy(place, jump, sizeof jump);
    memcpy(place + sizeof jump, &target, sizeof target);
}

static uint64_t page(uint64_t address) { return address & ~(uint64_t)0xfff; }

static bool fits(int64_t value, int bits) { return value >= -((int64_t)1 << (bits - 1)) && value < (int64_t)1 << (bits - 1); }

/* Puts `value` into the field of `width` bits at `shift` of the instruction. */
static relocation_result field(const relocation *r, uint64_t value, int width, int shift) {
    if (r->room < 4) return OUT_OF_ROOM;
    uint32_t mask = (uint32_t)((((uint64_t)1 << width) - 1) << shift), word;
    memcpy(&word, r->place, 4);
    word = (word & ~mask) | ((uint32_t)(value << shift) & mask);
    memcpy(r->place, &word, 4);
    return RELOCATED;
}

/* A branch or literal load: a distance in words. */
static relocation_result distance(const relocation *r, uint64_t target, int width, int shift) {
    int64_t value = (int64_t)(target + (uint64_t)r->addend - r->place_address);
    if (value & 3 || !fits(value, width + 2)) return OUT_OF_RANGE;
    return field(r, (uint64_t)value >> 2, width, shift);
}

/* adr and adrp: 21 bits, the low two apart. */
static relocation_result adr(const relocation *r, int64_t value) {
    if (!fits(value, 21)) return OUT_OF_RANGE;
    relocation_result low = field(r, (uint64_t)value & 3, 2, 29);
    return low ? low : field(r, (uint64_t)value >> 2, 19, 5);
}

static relocation_result adrp(const relocation *r, uint64_t target) {
    return adr(r, (int64_t)(page(target) - page(r->place_address)) >> 12);
}

/* The low 12 bits of an address in a load or store of 2^scale bytes. */
static relocation_result low_12(const relocation *r, uint64_t target, int scale) {
    uint64_t low = target & 0xfff;
    if (low & (((uint64_t)1 << scale) - 1)) return OUT_OF_RANGE;
    return field(r, low >> scale, 12, 10);
}

static relocation_result data(const relocation *r, uint64_t value, uint64_t width, bool is_signed) {
    if (r->room < width) return OUT_OF_ROOM;
    if (width == 4 && is_signed && (int64_t)value != (int32_t)value) return OUT_OF_RANGE;
    if (width == 4 && !is_signed && value != (uint32_t)value) return OUT_OF_RANGE;
    memcpy(r->place, &value, width); /* little-endian */
    return RELOCATED;
}

static relocation_result apply(const relocation *r) {
    const uint64_t target = r->symbol + (uint64_t)r->addend;
    if (r->type >= R_MOVW_UABS_G0 && r->type <= R_MOVW_UABS_G3) {
        uint32_t part = (r->type - R_MOVW_UABS_G0) / 2;
        bool checked = !((r->type - R_MOVW_UABS_G0) & 1) && part < 3;
        if (checked && target >> (16 * (part + 1))) return OUT_OF_RANGE;
        return field(r, target >> (16 * part) & 0xffff, 16, 5);
    }
    switch (r->type) {
    case R_NONE:
    case R_NONE_256: return RELOCATED;
    case R_ABS64: return data(r, target, 8, false);
    case R_ABS32: return data(r, target, 4, false);
    case R_PREL64: return data(r, target - r->place_address, 8, false);
    case R_PREL32: return data(r, target - r->place_address, 4, true);
    case R_PLT32: return data(r, r->stub + (uint64_t)r->addend - r->place_address, 4, true);
    case R_CALL26:
    case R_JUMP26: return distance(r, r->stub, 26, 0);
    case R_CONDBR19:
    case R_LD_PREL_LO19: return distance(r, r->symbol, 19, 5);
    case R_TSTBR14: return distance(r, r->symbol, 14, 5);
    case R_ADR_PREL_LO21: return adr(r, (int64_t)(target - r->place_address));
    case R_ADR_PREL_PG_HI21: return adrp(r, target);
    case R_ADR_PREL_PG_HI21_NC: return adrp(r, target);
    case R_ADD_ABS_LO12_NC: return low_12(r, target, 0);
    case R_LDST8_ABS_LO12_NC: return low_12(r, target, 0);
    case R_LDST16_ABS_LO12_NC: return low_12(r, target, 1);
    case R_LDST32_ABS_LO12_NC: return low_12(r, target, 2);
    case R_LDST64_ABS_LO12_NC: return low_12(r, target, 3);
    case R_LDST128_ABS_LO12_NC: return low_12(r, target, 4);
    case R_ADR_GOT_PAGE: return adrp(r, r->got + (uint64_t)r->addend);
    case R_LD64_GOT_LO12_NC: return low_12(r, r->got + (uint64_t)r->addend, 3);
    default: return UNKNOWN_RELOCATION;
    }
}

const relocator weft_aarch64_relocator = {
    ELF_AARCH64, "AArch64", &weft_elf_64, needs_got, is_absolute_32, write_stub, apply, NULL, NULL,
};
