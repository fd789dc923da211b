/* Reading the records of ELF files. The caller has checked that they lie in the file; they may be unaligned there. */
#include "elf.h"

#include <string.h>

typedef struct elf_header_32 {
    uint8_t ident[16];
    uint16_t type, machine;
    uint32_t version, entry, program_offset, section_offset, flags;
    uint16_t header_size, program_entry_size, program_count, section_entry_size, section_count, names_index;
} elf_header_32;

typedef struct elf_section_32 {
    uint32_t name, type, flags, address, offset, size, link, info, align, entry_size;
} elf_section_32;

typedef struct elf_symbol_32 {
    uint32_t name, value, size;
    uint8_t info, other;
    uint16_t section;
} elf_symbol_32;

typedef struct elf_rel_32 {
    uint32_t offset, info;
} elf_rel_32;

typedef struct elf_rela_64 {
    uint64_t offset, info;
    int64_t addend;
} elf_rela_64;

static void read_header_64(const unsigned char *at, elf_header *to) { memcpy(to, at, sizeof *to); }
static void read_section_64(const unsigned char *at, elf_section *to) { memcpy(to, at, sizeof *to); }
static void read_symbol_64(const unsigned char *at, elf_symbol *to) { memcpy(to, at, sizeof *to); }

static void read_relocation_64(const unsigned char *at, elf_relocation *to) {
    elf_rela_64 r;
    memcpy(&r, at, sizeof r);
    *to = (elf_relocation){r.offset, (uint32_t)(r.info >> 32), (uint32_t)r.info, r.addend};
}

static void read_header_32(const unsigned char *at, elf_header *to) {
    elf_header_32 h;
    memcpy(&h, at, sizeof h);
    memcpy(to->ident, h.ident, sizeof h.ident);
    to->type = h.type, to->machine = h.machine, to->version = h.version, to->entry = h.entry;
    to->program_offset = h.program_offset, to->section_offset = h.section_offset, to->flags = h.flags;
    to->header_size = h.header_size, to->program_entry_size = h.program_entry_size;
    to->program_count = h.program_count, to->section_entry_size = h.section_entry_size;
    to->section_count = h.section_count, to->names_index = h.names_index;
}

static void read_section_32(const unsigned char *at, elf_section *to) {
    elf_section_32 s;
    memcpy(&s, at, sizeof s);
    *to = (elf_section){s.name, s.type, s.flags, s.address, s.offset, s.size, s.link, s.info, s.align, s.entry_size};
}

static void read_symbol_32(const unsigned char *at, elf_symbol *to) {
    elf_symbol_32 s;
    memcpy(&s, at, sizeof s);
    *to = (elf_symbol){s.name, s.info, s.other, s.section, s.value, s.size};
}

static void read_relocation_32(const unsigned char *at, elf_relocation *to) {
    elf_rel_32 r;
    memcpy(&r, at, sizeof r);
    *to = (elf_relocation){r.offset, r.info >> 8, r.info & 0xff, 0};
}

const elf_format weft_elf_64 = {
    "ELF64",         2,
    sizeof(elf_header), sizeof(elf_section), sizeof(elf_symbol), sizeof(elf_rela_64),
    SECTION_RELA,
    read_header_64,  read_section_64,     read_symbol_64,     read_relocation_64,
};

const elf_format weft_elf_32 = {
    "ELF32",         1,
    sizeof(elf_header_32), sizeof(elf_section_32), sizeof(elf_symbol_32), sizeof(elf_rel_32),
    SECTION_REL,
    read_header_32,  read_section_32,        read_symbol_32,        read_relocation_32,
};
