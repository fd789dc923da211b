/* Loads relocatable ELF objects: maps their sections, resolves symbols, relocates, and makes code executable and read-only.
 *
 * The object may be malformed: every offset, index and size is checked against the size of the object before use. (The
 * code itself is trusted; it runs in this process.) One mapping contains these parts, each on separate pages:
 *
 *     text + stubs (read, execute) | read-only data + GOT (read) | data + zeroed data (read, write)
 *
 * A stub is a jump to a function of the runtime, which may be too far away for a relative call. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "elf.h"
#include "internal.h"
#include "relocate.h"

#if !defined(MAP_ANONYMOUS)
#define MAP_ANONYMOUS MAP_ANON
#endif

enum { TEXT, READONLY, DATA, PARTS };
enum { USED = 1, NAMED = 2 }; /* a symbol that relocations only name need not exist: routines that unwind the stack */
static const uint64_t MAX_BYTES = (uint64_t)1 << 30, MAX_SECTION_ALIGN = 4096;
static const uint64_t NOT_LOADED = UINT64_MAX;

typedef struct function_entry {
    const char *name; /* into names */
    uint64_t offset;  /* in the mapping */
    bool executable;
} function_entry;

struct weft_code {
    unsigned char *memory;
    size_t bytes;
    function_entry *entries;
    size_t entry_count;
    char *names;
    bool runnable;
};

/* The state of loading; the arrays are freed at the end. */
typedef struct loading {
    const unsigned char *object;
    uint64_t size;
    const elf_format *format;
    const relocator *machine;
    elf_section *sections;
    uint32_t section_count;
    elf_symbol *symbols;
    uint64_t symbol_count;
    const char *names;
    uint64_t names_size;
    uint64_t *section_at; /* offset of each section in the mapping, or NOT_LOADED */
    uint64_t *symbol_at;  /* address of each symbol */
    uint64_t *stub_at;    /* offset of its stub, or 0 */
    uint64_t *got_at;     /* offset of its GOT word, or 0 */
    bool *external;
    uint8_t *uses;        /* of each symbol: USED, NAMED or both */
    uint64_t part_end[PARTS], part_start[PARTS];
    uint64_t stub_next, got_start, got_next;
    uint64_t common_next; /* for common symbols, at the end of data */
    bool low_memory;
    weft_code *code;
    weft_error *error;
} loading;

#define MALFORMED(l, ...) weft_fail((l)->error, WEFT_ERROR_OBJECT, __VA_ARGS__)

static bool within(const loading *l, uint64_t offset, uint64_t size) {
    return offset <= l->size && size <= l->size - offset;
}

static uint64_t align_up(uint64_t value, uint64_t align) { return (value + align - 1) & ~(align - 1); }

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static const relocator *host_machine(void) {
#if defined(__x86_64__)
    return &weft_x86_64_relocator;
#elif defined(__aarch64__)
    return &weft_aarch64_relocator;
#elif defined(__riscv) && __riscv_xlen == 64
    return &weft_riscv64_relocator;
#elif defined(__ARM_PCS_VFP) && __ARM_ARCH >= 7 /* kernels pass floating-point numbers in the registers for them */
    return &weft_arm_relocator;
#else
    return NULL;
#endif
}

bool weft_loads_code(void) { return host_machine() != NULL; }

/* The format of a file: little-endian, of 64 or 32 bits; NULL for anything else. */
static const elf_format *format_of(const unsigned char *object) {
    static const elf_format *const formats[] = {&weft_elf_64, &weft_elf_32};
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        const uint8_t ident[] = {0x7f, 'E', 'L', 'F', formats[i]->class, 1 /* little-endian */, 1 /* version */};
        if (memcmp(object, ident, sizeof ident) == 0) return formats[i];
    }
    return NULL;
}

static int32_t read_header(loading *l, elf_header *header, int32_t flags) {
    static const relocator *const machines[] = {&weft_x86_64_relocator, &weft_aarch64_relocator,
                                                &weft_riscv64_relocator, &weft_arm_relocator};
    if (l->size < IDENT_BYTES) return MALFORMED(l, "object code is too short for an ELF header");
    l->format = format_of(l->object);
    if (!l->format) return MALFORMED(l, "object code is not a little-endian ELF file");
    if (l->size < l->format->header_bytes) return MALFORMED(l, "object code is too short for an ELF header");
    l->format->read_header(l->object, header);
    if (header->type != ELF_RELOCATABLE)
        return MALFORMED(l, "ELF file of type %d is not a relocatable object", header->type);
    for (size_t i = 0; i < sizeof machines / sizeof machines[0]; i++)
        if (machines[i]->machine == header->machine) l->machine = machines[i];
    if (!l->machine) return MALFORMED(l, "object code is for ELF machine %d, which is not supported", header->machine);
    if (l->machine->format != l->format)
        return MALFORMED(l, "object code for %s is an %s file, not %s", l->machine->name, l->format->name,
                         l->machine->format->name);
    if (l->machine != host_machine() && !(flags & WEFT_LOAD_FOREIGN))
        return MALFORMED(l, "object code is for %s, not for this machine", l->machine->name);
    if (header->section_entry_size != l->format->section_bytes || header->section_count == 0 ||
        header->section_count >= INDEX_RESERVED)
        return MALFORMED(l, "object code has a malformed section table");
    if (!within(l, header->section_offset, (uint64_t)header->section_count * l->format->section_bytes))
        return MALFORMED(l, "section table lies outside the object code");
    return WEFT_OK;
}

static int32_t check_section(const loading *l, uint32_t index) {
    const elf_section *s = &l->sections[index];
    if (s->type != SECTION_NOBITS && !within(l, s->offset, s->size))
        return MALFORMED(l, "section %u lies outside the object code", (unsigned)index);
    if (!(s->flags & FLAG_ALLOC)) return WEFT_OK;
    if (s->flags & FLAG_TLS) return MALFORMED(l, "section %u holds thread-local data", (unsigned)index);
    if (s->flags & FLAG_COMPRESSED) return MALFORMED(l, "section %u is compressed", (unsigned)index);
    if (s->size > MAX_BYTES) return MALFORMED(l, "section %u is too large", (unsigned)index);
    if (s->align > MAX_SECTION_ALIGN || (s->align & (s->align - 1)))
        return MALFORMED(l, "section %u has a bad alignment", (unsigned)index);
    return WEFT_OK;
}

static int32_t read_symbols(loading *l) {
    const elf_section *table = NULL;
    for (uint32_t i = 0; i < l->section_count; i++) {
        if (l->sections[i].type != SECTION_SYMBOLS) continue;
        if (table) return MALFORMED(l, "object code has two symbol tables");
        table = &l->sections[i];
    }
    if (!table) return WEFT_OK;
    const size_t bytes = l->format->symbol_bytes;
    if (table->entry_size != bytes || table->size % bytes || table->link >= l->section_count)
        return MALFORMED(l, "object code has a malformed symbol table");
    const elf_section *strings = &l->sections[table->link];
    if (strings->type != SECTION_STRINGS || strings->size == 0 || l->object[strings->offset + strings->size - 1] != 0)
        return MALFORMED(l, "object code has a malformed string table");
    l->names = (const char *)l->object + strings->offset;
    l->names_size = strings->size;
    l->symbol_count = table->size / bytes;
    l->symbols = calloc(l->symbol_count + 1, sizeof(elf_symbol));
    if (!l->symbols) return weft_fail(l->error, WEFT_ERROR_MEMORY, "out of memory while loading code");
    for (uint64_t i = 0; i < l->symbol_count; i++) {
        elf_symbol *s = &l->symbols[i];
        l->format->read_symbol(l->object + table->offset + i * bytes, s);
        int type = s->info & 15;
        if (s->name >= l->names_size) return MALFORMED(l, "symbol %llu has a bad name", (unsigned long long)i);
        if (type == TYPE_TLS || type == TYPE_IFUNC)
            return MALFORMED(l, "symbol '%s' is of an unsupported kind", l->names + s->name);
        if (s->section == INDEX_UNDEFINED || s->section == INDEX_ABSOLUTE) continue;
        if (s->section == INDEX_COMMON) {
            if (s->size > MAX_BYTES || s->value > MAX_SECTION_ALIGN || (s->value & (s->value - 1)))
                return MALFORMED(l, "common symbol '%s' is malformed", l->names + s->name);
        } else if (s->section >= l->section_count) {
            return MALFORMED(l, "symbol '%s' is in no section", l->names + s->name);
        } else if (s->value > l->sections[s->section].size) {
            return MALFORMED(l, "symbol '%s' lies outside its section", l->names + s->name);
        }
    }
    return WEFT_OK;
}

static int32_t read_object(loading *l, int32_t flags) {
    elf_header header;
    int32_t status = read_header(l, &header, flags);
    if (status) return status;
    l->section_count = header.section_count;
    l->sections = malloc(l->section_count * sizeof(elf_section));
    if (!l->sections) return weft_fail(l->error, WEFT_ERROR_MEMORY, "out of memory while loading code");
    for (uint32_t i = 0; i < l->section_count; i++)
        l->format->read_section(l->object + header.section_offset + i * l->format->section_bytes, &l->sections[i]);
    uint64_t contents = 0;
    for (uint32_t i = 0; i < l->section_count && !status; i++) {
        status = check_section(l, i);
        if (!status && l->sections[i].type != SECTION_NOBITS) contents += l->sections[i].size;
        if (!status && contents > l->size) status = MALFORMED(l, "sections of the object code overlap");
    }
    return status ? status : read_symbols(l);
}

/* ---- placing ----------------------------------------------------------------------------------------------------- */

static int part_of(const elf_section *s) { return s->flags & FLAG_EXEC ? TEXT : s->flags & FLAG_WRITE ? DATA : READONLY; }

/* The section that relocation section `index` changes, or NULL if that is not loaded or `index` is another section. */
static const elf_section *relocated_section(const loading *l, uint32_t index) {
    const elf_section *s = &l->sections[index];
    if ((s->type != SECTION_RELA && s->type != SECTION_REL) || s->info >= l->section_count) return NULL;
    return l->sections[s->info].flags & FLAG_ALLOC ? &l->sections[s->info] : NULL;
}

static uint64_t relocation_count(const loading *l, const elf_section *table) {
    return table->size / l->format->relocation_bytes;
}

static elf_relocation entry_at(const loading *l, const elf_section *table, uint64_t index) {
    elf_relocation r;
    l->format->read_relocation(l->object + table->offset + index * l->format->relocation_bytes, &r);
    return r;
}

/* Checks relocation sections and marks the symbols that need a word in the GOT (got_at becomes non-zero). */
static int32_t scan_relocations(loading *l) {
    for (uint32_t i = 0; i < l->section_count; i++) {
        const elf_section *s = &l->sections[i];
        bool is_table = s->type == SECTION_RELA || s->type == SECTION_REL;
        if (is_table && s->info >= l->section_count)
            return MALFORMED(l, "section %u relocates no section", (unsigned)i);
        if (!relocated_section(l, i)) continue;
        if (s->type != l->format->relocation_type || s->entry_size != l->format->relocation_bytes ||
            s->size % l->format->relocation_bytes)
            return MALFORMED(l, "section %u holds malformed relocations", (unsigned)i);
        for (uint64_t k = 0; k < relocation_count(l, s); k++) {
            elf_relocation r = entry_at(l, s, k);
            if (r.symbol >= l->symbol_count)
                return MALFORMED(l, "relocation %llu of section %u names no symbol", (unsigned long long)k, (unsigned)i);
            l->uses[r.symbol] |= r.type == RELOCATION_NONE ? NAMED : USED;
            if (l->machine->needs_got(r.type)) l->got_at[r.symbol] = 1;
            if (l->machine->is_absolute_32(r.type)) l->low_memory = true;
        }
    }
    return WEFT_OK;
}

static int32_t place_sections(loading *l) {
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), at = 0;
    uint64_t stubs = 0, words = 0, common = 0;
    for (uint64_t i = 0; i < l->symbol_count; i++) { /* the null symbol too: malformed objects use it */
        stubs += l->symbols[i].section == INDEX_UNDEFINED;
        words += l->got_at[i] != 0;
        if (l->symbols[i].section == INDEX_COMMON) common += l->symbols[i].size + MAX_SECTION_ALIGN;
        if (common > MAX_BYTES) return MALFORMED(l, "common symbols are too large");
    }
    for (int part = TEXT; part < PARTS; part++) {
        at = l->part_start[part] = align_up(at, page);
        for (uint32_t i = 0; i < l->section_count; i++) {
            const elf_section *s = &l->sections[i];
            if (!(s->flags & FLAG_ALLOC) || part_of(s) != part) continue;
            l->section_at[i] = at = align_up(at, s->align ? s->align : 1);
            at += s->size;
            if (at > MAX_BYTES) return MALFORMED(l, "object code needs too much memory");
        }
        at = align_up(at, STUB_BYTES);
        if (part == TEXT) l->stub_next = at, at += stubs * STUB_BYTES;
        if (part == READONLY) l->got_start = l->got_next = at, at += words * 8;
        if (part == DATA) l->common_next = at, at += common;
        if (at > 2 * MAX_BYTES) return MALFORMED(l, "object code needs too much memory"); /* its size fits a size_t */
        l->part_end[part] = at;
    }
    l->code->bytes = align_up(at + 1, page);
    return WEFT_OK;
}

static int32_t map_sections(loading *l) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
#if defined(MAP_32BIT)
    if (l->low_memory) flags |= MAP_32BIT;
#endif
    void *memory = mmap(NULL, l->code->bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (memory == MAP_FAILED) return weft_fail(l->error, WEFT_ERROR_MEMORY, "cannot map memory for code");
    l->code->memory = memory;
    for (uint32_t i = 0; i < l->section_count; i++) {
        const elf_section *s = &l->sections[i];
        if (l->section_at[i] == NOT_LOADED || s->type == SECTION_NOBITS || s->size == 0) continue;
        memcpy(l->code->memory + l->section_at[i], l->object + s->offset, s->size);
    }
    return WEFT_OK;
}

/* ---- resolving and relocating ------------------------------------------------------------------------------------ */

static int32_t resolve_symbol(loading *l, uint64_t index) {
    const elf_symbol *s = &l->symbols[index];
    uint64_t base = (uint64_t)(uintptr_t)l->code->memory;
    if (s->section == INDEX_ABSOLUTE) {
        l->symbol_at[index] = s->value;
    } else if (s->section == INDEX_COMMON) {
        l->common_next = align_up(l->common_next, s->value ? s->value : 1);
        l->symbol_at[index] = base + l->common_next;
        l->common_next += s->size;
    } else if (s->section != INDEX_UNDEFINED) {
        if (l->section_at[s->section] != NOT_LOADED) l->symbol_at[index] = base + l->section_at[s->section] + s->value;
    } else if (index && strcmp(l->names + s->name, "_GLOBAL_OFFSET_TABLE_") == 0) {
        l->symbol_at[index] = base + l->got_start;
    } else if (index) {
        const char *name = l->names + s->name;
        void *address = weft_export_address(name);
        if (!address && s->info >> 4 != BIND_WEAK && l->uses[index] != NAMED)
            return weft_fail(l->error, WEFT_ERROR_SYMBOL, "object code needs '%s', which the runtime does not offer", name);
        l->symbol_at[index] = (uint64_t)(uintptr_t)address;
        l->external[index] = true;
        l->stub_at[index] = l->stub_next;
        l->machine->write_stub(l->code->memory + l->stub_next, l->symbol_at[index]);
        l->stub_next += STUB_BYTES;
    }
    if (l->got_at[index]) {
        l->got_at[index] = l->got_next;
        memcpy(l->code->memory + l->got_next, &l->symbol_at[index], 8);
        l->got_next += 8;
    }
    return WEFT_OK;
}

/* Relocation `number` of table `table`, with all it may refer to but a partner. */
static relocation relocation_at(const loading *l, const elf_section *table, uint64_t number) {
    const elf_relocation entry = entry_at(l, table, number);
    const uint64_t at = l->section_at[table->info], base = (uint64_t)(uintptr_t)l->code->memory;
    const uint32_t symbol = entry.symbol;
    const elf_section *section = &l->sections[table->info];
    relocation r = {.type = entry.type, .symbol = l->symbol_at[symbol], .addend = entry.addend};
    if (entry.offset > section->size) return r;
    r.room = section->size - entry.offset;
    r.place = l->code->memory + at + entry.offset;
    r.place_address = base + at + entry.offset;
    r.stub = l->external[symbol] ? base + l->stub_at[symbol] : r.symbol;
    r.got = base + l->got_at[symbol];
    r.got_start = base + l->got_start;
    r.is_function = l->external[symbol] || (l->symbols[symbol].info & 15) == TYPE_FUNCTION;
    return r;
}

/* Finds the relocation at address `r->symbol`: most often one of the last before number `before`. */
static bool find_partner(const loading *l, const elf_section *table, uint64_t before, const relocation *r,
                         relocation *partner) {
    uint64_t count = relocation_count(l, table);
    for (uint64_t i = 0; i < count; i++) {
        *partner = relocation_at(l, table, (before + count - 1 - i) % count);
        if (partner->place && partner->place_address == r->symbol && l->machine->is_partner(partner->type)) return true;
    }
    return false;
}

static int32_t relocate_section(loading *l, uint32_t index) {
    static const char *const reasons[] = {"", "is of an unknown type", "does not reach its target",
                                          "lies outside its section", "names an instruction that has no relocation",
                                          "is of a jump to code of the other instruction set"};
    const elf_section *table = &l->sections[index], *section = relocated_section(l, index);
    if (!section) return WEFT_OK;
    if (section->type == SECTION_NOBITS) return MALFORMED(l, "relocations of a section without contents");
    for (uint64_t i = 0; i < relocation_count(l, table); i++) {
        relocation r = relocation_at(l, table, i), partner;
        relocation_result result = OUT_OF_ROOM;
        if (r.place && l->machine->names_partner && l->machine->names_partner(r.type)) {
            bool found = find_partner(l, table, i, &r, &partner);
            r.partner = &partner;
            result = found ? l->machine->apply(&r) : NO_PARTNER;
        } else if (r.place) {
            result = l->machine->apply(&r);
        }
        if (result != RELOCATED)
            return MALFORMED(l, "relocation %llu of section %u (type %u) %s", (unsigned long long)i,
                             (unsigned)table->info, (unsigned)r.type, reasons[result]);
    }
    return WEFT_OK;
}

static int32_t protect(loading *l) {
    unsigned char *memory = l->code->memory;
    uint64_t text = l->part_start[READONLY], data = l->part_start[DATA];
    __builtin___clear_cache((char *)memory, (char *)memory + text);
    int access = l->code->runnable ? PROT_READ | PROT_EXEC : PROT_READ;
    if ((text && mprotect(memory, text, access)) || (data > text && mprotect(memory + text, data - text, PROT_READ)))
        return weft_fail(l->error, WEFT_ERROR_MEMORY, "the system does not allow executable memory");
    return WEFT_OK;
}

/* ---- the list of symbols that remains ---------------------------------------------------------------------------- */

static bool is_offered(const loading *l, const elf_symbol *s) {
    int type = s->info & 15;
    return s->info >> 4 != BIND_LOCAL && s->section != INDEX_UNDEFINED && s->section < l->section_count &&
           l->section_at[s->section] != NOT_LOADED && type <= TYPE_FUNCTION && s->value < l->sections[s->section].size;
}

static int32_t keep_symbols(loading *l) {
    weft_code *code = l->code;
    code->names = malloc(l->names_size + 1);
    code->entries = malloc((l->symbol_count + 1) * sizeof *code->entries);
    if (!code->names || !code->entries)
        return weft_fail(l->error, WEFT_ERROR_MEMORY, "out of memory while loading code");
    if (l->names_size) memcpy(code->names, l->names, l->names_size);
    for (uint64_t i = 0; i < l->symbol_count; i++) {
        const elf_symbol *s = &l->symbols[i];
        if (!is_offered(l, s)) continue;
        code->entries[code->entry_count++] = (function_entry){
            .name = code->names + s->name,
            .offset = l->section_at[s->section] + s->value,
            .executable = (l->sections[s->section].flags & FLAG_EXEC) != 0,
        };
    }
    return WEFT_OK;
}

static int32_t allocate_tables(loading *l) {
    uint64_t n = l->symbol_count + 1;
    l->section_at = malloc((l->section_count + 1) * sizeof(uint64_t));
    l->symbol_at = calloc(n, sizeof(uint64_t));
    l->stub_at = calloc(n, sizeof(uint64_t));
    l->got_at = calloc(n, sizeof(uint64_t));
    l->external = calloc(n, sizeof(bool));
    l->uses = calloc(n, sizeof(uint8_t));
    if (!l->section_at || !l->symbol_at || !l->stub_at || !l->got_at || !l->external || !l->uses)
        return weft_fail(l->error, WEFT_ERROR_MEMORY, "out of memory while loading code");
    for (uint32_t i = 0; i < l->section_count; i++) l->section_at[i] = NOT_LOADED;
    return WEFT_OK;
}

static int32_t load(loading *l, int32_t flags) {
    int32_t status = read_object(l, flags);
    if (!status) status = allocate_tables(l);
    if (!status) status = scan_relocations(l);
    if (!status) status = place_sections(l);
    if (!status) status = map_sections(l);
    for (uint64_t i = 0; i < l->symbol_count && !status; i++) status = resolve_symbol(l, i);
    for (uint32_t i = 0; i < l->section_count && !status; i++) status = relocate_section(l, i);
    if (!status) status = keep_symbols(l);
    if (!status) {
        l->code->runnable = l->machine == host_machine();
        status = protect(l);
    }
    return status;
}

int32_t weft_code_load(const void *object, size_t size, int32_t flags, weft_code **out, weft_error *error) {
    loading l = {.object = object, .size = size, .error = error, .code = calloc(1, sizeof(weft_code))};
    *out = NULL;
    if (!l.code) return weft_fail(error, WEFT_ERROR_MEMORY, "out of memory while loading code");
    int32_t status = load(&l, flags);
    free(l.sections);
    free(l.symbols);
    free(l.section_at);
    free(l.symbol_at);
    free(l.stub_at);
    free(l.got_at);
    free(l.external);
    free(l.uses);
    if (status)
        weft_code_free(l.code);
    else
        *out = l.code;
    return status;
}

static const function_entry *find_entry(const weft_code *code, const char *name) {
    for (size_t i = 0; i < code->entry_count; i++)
        if (strcmp(code->entries[i].name, name) == 0) return &code->entries[i];
    return NULL;
}

void *weft_code_symbol(const weft_code *code, const char *name) {
    const function_entry *entry = find_entry(code, name);
    return entry ? code->memory + entry->offset : NULL;
}

weft_kernel weft_code_function(const weft_code *code, const char *name) {
    const function_entry *entry = find_entry(code, name);
    weft_kernel kernel = NULL;
    if (entry && entry->executable && code->runnable) {
        void *address = code->memory + entry->offset;
        memcpy(&kernel, &address, sizeof kernel);
    }
    return kernel;
}

size_t weft_code_bytes(const weft_code *code) { return code->bytes; }

void weft_code_free(weft_code *code) {
    if (!code) return;
    if (code->memory) munmap(code->memory, code->bytes);
    free(code->entries);
    free(code->names);
    free(code);
}
