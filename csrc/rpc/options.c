/* The command line of the server, and its key. */
#define _GNU_SOURCE
#include "options.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "address.h"
#include "listen.h"
#include "tls.h"

enum { DEFAULT_PORT = 9190 };

static const char HELP[] =
    "Usage: weft-rpc-server [OPTIONS]\n"
    "\n"
    "Lets clients with the same key run code on this machine, measure it and copy data here.\n"
    "\n"
    "  --key-file FILE        the shared key; others must not be able to read the file (default: WEFT_RPC_KEY)\n"
    "  --listen ADDRESS       address in numbers (default: 127.0.0.1, which only this machine reaches)\n"
    "  --port N               0: any free port, which is printed (default: 9190)\n"
    "  --insecure-network     listen on an address that others reach: they can read what is sent, which is\n"
    "                         authenticated but not encrypted; prefer an SSH tunnel\n"
    "  --tls-cert FILE, --tls-key FILE\n"
    "                         encrypt: a certificate and its private key (PEM), if this server is built with TLS\n"
    "  --tracker HOST:PORT    register there, and let in who has a ticket of a lease only\n"
    "  --tracker-ca FILE      encrypt that, and trust these certificates (PEM), if this server is built with TLS\n"
    "  --public-tls           what clients reach speaks TLS, and passes their bytes on to this server\n"
    "  --board-key NAME       what clients ask the tracker for, such as pi4 (default: the name)\n"
    "  --public-address NAME, --public-port N\n"
    "                         where clients and the tracker reach this server (default: where it connects from, --port)\n"
    "  --description TEXT     a line for people who look at the tracker's status\n"
    "  --name NAME            what clients call this machine (default: its host name)\n"
    "  --max-sessions N       most sessions at once; 1 for exact measurements (default: 4; with --tracker: 1)\n"
    "  --session-bytes N      most address space of a session, as 800M or 4G; 0: no limit (default: 0)\n"
    "  --session-seconds N    most time of a session; 0: no limit (default: 3600)\n"
    "  --cpu-seconds N        most processor time of a session; 0: no limit (default: 3600)\n"
    "  --request-seconds N    most time of a request; 0: no limit (default: 60)\n"
    "  --idle-seconds N       a client that asks for nothing loses its session; 0: never (default: 600)\n"
    "  --frame-bytes N        largest message, from 4096 to 64M (default: 4M)\n"
    "  --allow-root           run as root\n"
    "  --help, --version\n";

/* A number, with K, M or G behind it where it counts bytes; false: it is none, or not in the range. */
static bool read_number(const char *text, bool bytes, int64_t least, int64_t most, int64_t *value) {
    char *end;
    errno = 0;
    const long long number = strtoll(text, &end, 10);
    int shift = 0;
    if (end == text || errno || number < 0 || text[0] == '+' || text[0] == '-' || text[0] == ' ') return false;
    if (bytes && *end) {
        shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
        if (shift) end++;
    }
    if (*end || number > INT64_MAX >> shift) return false;
    *value = (int64_t)number << shift;
    return *value >= least && *value <= most;
}

typedef struct number_option {
    const char *name;
    int64_t least, most;
    bool bytes;
    int64_t value;
} number_option;

enum {
    PORT,
    SESSIONS,
    SESSION_BYTES,
    SESSION_SECONDS,
    CPU_SECONDS,
    REQUEST_SECONDS,
    IDLE_SECONDS,
    FRAME_BYTES,
    PUBLIC_PORT,
    NUMBERS
};
#define MOST_SECONDS INT64_C(1000000000)

typedef struct given {
    number_option numbers[NUMBERS];
    const char *key_file;
} given;

static const given DEFAULTS = {.numbers = {
    [PORT] = {"--port", 0, 65535, false, DEFAULT_PORT},
    [SESSIONS] = {"--max-sessions", 1, RPC_MAX_SESSIONS, false, 0},
    [SESSION_BYTES] = {"--session-bytes", 0, INT64_MAX, true, 0},
    [SESSION_SECONDS] = {"--session-seconds", 0, MOST_SECONDS, false, 3600},
    [CPU_SECONDS] = {"--cpu-seconds", 0, MOST_SECONDS, false, 3600},
    [REQUEST_SECONDS] = {"--request-seconds", 0, MOST_SECONDS, false, 60},
    [IDLE_SECONDS] = {"--idle-seconds", 0, MOST_SECONDS, false, 600},
    [FRAME_BYTES] = {"--frame-bytes", RPC_MIN_LIMIT, RPC_MAX_LIMIT, true, RPC_DEFAULT_LIMIT},
    [PUBLIC_PORT] = {"--public-port", 1, 65535, false, 0},
}};

static int wrong(const char *what, const char *word) {
    rpc_log("%s '%.100s'; --help lists the options", what, word);
    return 2;
}

static int take_text(const char *word, const char *value, char *to, size_t room) {
    if (!value[0] || strlen(value) >= room) return wrong("a text is empty or too long for", word);
    memcpy(to, value, strlen(value) + 1);
    return -1;
}

/* An option with a value. */
static int take_value(rpc_options *o, given *g, const char *word, const char *value) {
    if (strcmp(word, "--listen") == 0)
        return take_text(word, strcmp(value, "localhost") ? value : "127.0.0.1", o->address, sizeof o->address);
    if (strcmp(word, "--name") == 0) return take_text(word, value, o->name, sizeof o->name);
    if (strcmp(word, "--tracker") == 0) return o->tracker = value, -1;
    if (strcmp(word, "--board-key") == 0) return take_text(word, value, o->board_key, sizeof o->board_key);
    if (strcmp(word, "--description") == 0) return take_text(word, value, o->description, sizeof o->description);
    if (strcmp(word, "--public-address") == 0) return take_text(word, value, o->public_address, sizeof o->public_address);
    if (strcmp(word, "--key-file") == 0) return g->key_file = value, -1;
    if (strcmp(word, "--tls-cert") == 0) return o->certificate = value, -1;
    if (strcmp(word, "--tls-key") == 0) return o->certificate_key = value, -1;
    if (strcmp(word, "--tracker-ca") == 0) return o->tracker_trusted = value, -1;
    for (int i = 0; i < NUMBERS; i++) {
        number_option *n = &g->numbers[i];
        if (strcmp(word, n->name)) continue;
        if (read_number(value, n->bytes, n->least, n->most, &n->value)) return -1;
        rpc_log("%s is a whole number from %lld to %lld, not '%.60s'", word, (long long)n->least, (long long)n->most, value);
        return 2;
    }
    return wrong("unknown option", word);
}

static bool has_value(const char *word) {
    static const char *const others[] = {"--listen", "--name", "--key-file", "--tls-cert", "--tls-key", "--tracker",
                                         "--tracker-ca",
                                         "--board-key", "--description", "--public-address"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strcmp(word, others[i]) == 0) return true;
    for (int i = 0; i < NUMBERS; i++)
        if (strcmp(word, DEFAULTS.numbers[i].name) == 0) return true;
    return false;
}

static int take_words(int count, char **words, rpc_options *o, given *g) {
    for (int i = 1; i < count; i++) {
        const char *word = words[i];
        int status = -1;
        if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) return fputs(HELP, stdout) < 0;
        if (strcmp(word, "--version") == 0)
            return printf("weft-rpc-server, protocol %d, programs %d, %s TLS\n", RPC_VERSION, WEFT_PROGRAM_VERSION,
                          rpc_tls_is_built() ? "with" : "without") < 0;
        if (strcmp(word, "--allow-root") == 0) o->allow_root = true;
        else if (strcmp(word, "--insecure-network") == 0) o->insecure_network = true;
        else if (strcmp(word, "--public-tls") == 0) o->public_tls = true;
        else if (has_value(word) && i + 1 == count) status = wrong("a value is missing after", word);
        else if (has_value(word)) status = take_value(o, g, word, words[++i]);
        else status = wrong("unknown option", word);
        if (status >= 0) return status;
    }
    return -1;
}

/* ---- the key ----------------------------------------------------------------------------------------------------- */

static int read_key_file(const char *path, rpc_key *key) {
    struct stat about;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &about)) {
        rpc_log("the key cannot be read from '%.200s': %s", path, strerror(errno));
        if (fd >= 0) close(fd);
        return 1;
    }
    if (about.st_mode & (S_IRWXG | S_IRWXO)) {
        rpc_log("other users may read or change the key in '%.200s': chmod 600 it", path);
        close(fd);
        return 1;
    }
    ssize_t got = 1;
    while (key->count < sizeof key->bytes && got > 0) {
        got = read(fd, key->bytes + key->count, sizeof key->bytes - key->count);
        if (got > 0) key->count += (size_t)got;
    }
    close(fd);
    if (got < 0) rpc_log("the key cannot be read from '%.200s': %s", path, strerror(errno));
    return got < 0 ? 1 : -1;
}

static int read_key(const given *g, rpc_key *key) {
    char *variable = getenv("WEFT_RPC_KEY");
    key->count = 0;
    if (g->key_file) {
        const int status = read_key_file(g->key_file, key);
        if (status >= 0) return status;
    } else if (variable && variable[0]) {
        key->count = strlen(variable) < sizeof key->bytes ? strlen(variable) : sizeof key->bytes;
        memcpy(key->bytes, variable, key->count);
        rpc_wipe(variable, strlen(variable)); /* code of clients must not find it */
        (void)unsetenv("WEFT_RPC_KEY");
    } else {
        return rpc_log("no key: give --key-file FILE, or set WEFT_RPC_KEY"), 1;
    }
    while (key->count && memchr(" \t\r\n", key->bytes[key->count - 1], 4)) key->count--;
    if (key->count >= RPC_MIN_KEY && key->count <= RPC_MAX_KEY) return -1;
    rpc_log("the key has %zu bytes, not %d to %d", key->count, RPC_MIN_KEY, RPC_MAX_KEY);
    return 1;
}

static int check_tracker(const rpc_options *o) {
    char host[RPC_HOST];
    int port;
    const bool given = o->board_key[0] || o->description[0] || o->public_address[0] || o->public_port ||
                       o->tracker_trusted || o->public_tls;
    if (!o->tracker && given)
        return rpc_log("--tracker-ca, --board-key, --description and --public-… need --tracker"), 2;
    if (o->tracker_trusted) {
        char why[128];
        if (!rpc_tls_prepare_client(o->tracker_trusted, why, sizeof why))
            return rpc_log("no TLS with the tracker by '%.100s': %s", o->tracker_trusted, why), 1;
    }
    if (!o->tracker || rpc_split_address(o->tracker, host, &port)) return -1;
    rpc_log("'%.100s' is no address of a tracker: write it as tracker.example:9180 or 192.168.1.5:9180", o->tracker);
    return 2;
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

static int check(const rpc_options *o) {
    if (geteuid() == 0 && !o->allow_root) {
        rpc_log("clients run any code here: not as root, unless --allow-root is given");
        return 1;
    }
    if (o->certificate || o->certificate_key) {
        char why[128];
        if (!o->certificate || !o->certificate_key) return rpc_log("TLS needs --tls-cert and --tls-key"), 2;
        if (rpc_tls_prepare(o->certificate, o->certificate_key, why, sizeof why)) return -1;
        rpc_log("no TLS with '%.100s' and '%.100s': %s", o->certificate, o->certificate_key, why);
        return 1;
    }
    if (!rpc_is_loopback(o->address)) {
        if (!o->insecure_network) {
            rpc_log("others can read what is sent to %s, which is authenticated but not encrypted: use an SSH tunnel to "
                    "127.0.0.1, or give --insecure-network", o->address);
            return 1;
        }
        rpc_log("listening on %s without encryption: whoever is on the way can read code and data", o->address);
    }
    return -1;
}

int rpc_read_options(int count, char **words, rpc_options *o) {
    given g = DEFAULTS;
    memset(o, 0, sizeof *o);
    memcpy(o->address, "127.0.0.1", sizeof "127.0.0.1");
    int status = take_words(count, words, o, &g);
    if (status >= 0) return status;
    o->port = (int32_t)g.numbers[PORT].value;
    o->max_sessions = (int32_t)(g.numbers[SESSIONS].value ? g.numbers[SESSIONS].value : o->tracker ? 1 : 4);
    o->public_port = (int32_t)g.numbers[PUBLIC_PORT].value;
    o->session_bytes = g.numbers[SESSION_BYTES].value;
    o->session_seconds = g.numbers[SESSION_SECONDS].value;
    o->cpu_seconds = g.numbers[CPU_SECONDS].value;
    o->request_seconds = g.numbers[REQUEST_SECONDS].value;
    o->idle_seconds = g.numbers[IDLE_SECONDS].value;
    o->frame_bytes = (uint32_t)g.numbers[FRAME_BYTES].value;
    status = check_tracker(o);
    if (status < 0) status = check(o);
    return status >= 0 ? status : read_key(&g, &o->key);
}
