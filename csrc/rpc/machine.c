/* What this machine is. */
#define _GNU_SOURCE
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "internal.h"
#include "platform.h"
#include "session.h"

#if defined(__x86_64__)
#include <cpuid.h>
#define ARCHITECTURE "x86_64"
#elif defined(__aarch64__)
#define ARCHITECTURE "aarch64"
#elif defined(__riscv) && __riscv_xlen == 64
#define ARCHITECTURE "riscv64"
#elif defined(__arm__) && __ARM_ARCH >= 7 /* later ones run its code, too */
#define ARCHITECTURE "armv7"
#elif defined(__arm__)
#define ARCHITECTURE "arm"
#else
#define ARCHITECTURE "unknown"
#endif

/* Who made the processor, as it says itself. */
static void find_maker(char maker[16]) {
    maker[0] = 0;
#if defined(__x86_64__)
    unsigned top, b, c, d;
    if (!__get_cpuid(0, &top, &b, &c, &d)) return;
    memcpy(maker, &b, 4);
    memcpy(maker + 4, &d, 4);
    memcpy(maker + 8, &c, 4);
    maker[12] = 0;
#endif
}

/* The first word of a file of the system; empty where there is none. */
static void read_word(int index, const char *name, char word[32]) {
    char path[96];
    (void)snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index, name);
    FILE *file = fopen(path, "r");
    if (!file || fscanf(file, "%31s", word) != 1) word[0] = 0;
    if (file) fclose(file);
}

/* Bytes of the data caches, 0 where the system does not tell. */
static void find_caches(int64_t bytes[3]) {
    char level[32], kind[32], size[32], unit;
    memset(bytes, 0, 3 * sizeof bytes[0]);
    for (int i = 0; i < 8; i++) {
        long long number = 0;
        read_word(i, "level", level);
        read_word(i, "type", kind);
        read_word(i, "size", size);
        if (level[0] < '1' || level[0] > '3' || strcmp(kind, "Instruction") == 0) continue;
        int found = sscanf(size, "%lld%c", &number, &unit);
        if (found < 1 || number < 1 || number > 1 << 30) continue;
        bytes[level[0] - '1'] = (int64_t)number << (found < 2 ? 0 : unit == 'K' ? 10 : unit == 'M' ? 20 : 0);
    }
}

static void write_machine(const rpc_options *o, rpc_writer *out) {
    char host[128] = "", maker[16];
    struct utsname system;
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    int64_t caches[3];
    if (gethostname(host, sizeof host - 1) || !host[0]) (void)snprintf(host, sizeof host, "a machine");
    find_maker(maker);
    find_caches(caches);
    if (uname(&system)) memset(&system, 0, sizeof system);
    for (char *c = system.sysname; *c; c++) *c = (char)tolower((unsigned char)*c);
    rpc_write_line(out, "name", o->name[0] ? o->name : host);
    rpc_write_line(out, "system", system.sysname);
    rpc_write_line(out, "architecture", ARCHITECTURE);
    rpc_write_line(out, "maker", maker);
    rpc_write_line(out, "features", weft_cpu_features());
    rpc_write_number(out, "cores", weft_processors());
    rpc_write_number(out, "memory", pages > 0 && page > 0 ? (int64_t)pages * page : 0);
    rpc_write_number(out, "l1", caches[0]);
    rpc_write_number(out, "l2", caches[1]);
    rpc_write_number(out, "l3", caches[2]);
}

void rpc_write_info(const rpc_options *o, rpc_writer *out) {
    write_machine(o, out);
    rpc_write_line(out, "formats", weft_loads_code() ? "elf" : "");
    rpc_write_number(out, "abi", WEFT_ABI_VERSION);
    rpc_write_number(out, "program", WEFT_PROGRAM_VERSION);
    rpc_write_number(out, "sessions", o->max_sessions);
    rpc_write_number(out, "request_seconds", o->request_seconds);
    rpc_write_number(out, "cpu_seconds", o->cpu_seconds);
    rpc_write_number(out, "session_seconds", o->session_seconds);
    rpc_write_number(out, "idle_seconds", o->idle_seconds);
    rpc_write_number(out, "session_bytes", o->session_bytes);
}

int32_t rpc_info(rpc_session *s, rpc_reader *in, rpc_writer *out) {
    if (!rpc_read_all(in)) return rpc_malformed(s);
    rpc_write_info(s->options, out);
    return RPC_FINE;
}
