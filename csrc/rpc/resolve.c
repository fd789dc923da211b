/* Names of machines, by /etc/hosts and by the name servers of /etc/resolv.conf (RFC 1035).
 *
 * The C library's getaddrinfo loads shared libraries, which a static program cannot count on: they would have to be those
 * of the library that it was linked to. This is all that a board needs: an address for a name. Answers of name servers are
 * not trusted: every length is checked, and who answers at the address has to prove the key. */
#define _GNU_SOURCE
#include "resolve.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "frames.h"
#include "handshake.h"
#include "tls.h"
#include "weft_runtime.h"

#if !defined(RPC_HOSTS_FILE) /* tests have their own */
#define RPC_HOSTS_FILE "/etc/hosts"
#define RPC_RESOLV_FILE "/etc/resolv.conf"
#define RPC_DNS_PORT 53
#endif

enum { MAX_SERVERS = 3, MAX_SEARCHES = 6, MAX_LINE = 1024, MAX_LABEL = 63, ROUNDS = 2, HEADER = 12, MESSAGE = 1232 };
enum { TYPE_A = 1, TYPE_AAAA = 28, CLASS_IN = 1 };
#define ANSWER_NANOSECONDS (2 * RPC_SECOND)

socklen_t rpc_read_address(const char *text, int port, rpc_address *to) {
    memset(to, 0, sizeof *to);
    if (inet_pton(AF_INET, text, &to->v4.sin_addr) == 1) {
        to->v4.sin_family = AF_INET;
        to->v4.sin_port = htons((uint16_t)port);
        return sizeof to->v4;
    }
    if (inet_pton(AF_INET6, text, &to->v6.sin6_addr) == 1) {
        to->v6.sin6_family = AF_INET6;
        to->v6.sin6_port = htons((uint16_t)port);
        return sizeof to->v6;
    }
    return 0;
}

bool rpc_is_name(const char *text) {
    size_t label = 0, dots = 0;
    bool has_letter = false;
    if (strlen(text) >= RPC_HOST) return false;
    for (const char *c = text; *c; c++) {
        const bool letter = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z'), digit = *c >= '0' && *c <= '9';
        if (*c == '.' ? !label : !(letter || digit || *c == '_' || (*c == '-' && label))) return false;
        label = *c == '.' ? 0 : label + 1;
        dots += *c == '.';
        has_letter = has_letter || letter;
        if (label > MAX_LABEL) return false;
    }
    return has_letter && *text; /* numbers with dots are a mistake in an address */
}

/* ---- files of the system ----------------------------------------------------------------------------------------- */

/* The next word of a line, which ends there; NULL: there is none, or a remark begins. */
static char *next_word(char **at) {
    char *word = *at + strspn(*at, " \t\r\n");
    if (!*word || *word == '#' || *word == ';') return NULL;
    *at = word + strcspn(word, " \t\r\n");
    if (**at) *(*at)++ = 0;
    return word;
}

static socklen_t in_hosts(const char *name, int port, rpc_address *to) {
    char line[MAX_LINE], *at, *word;
    socklen_t found = 0;
    FILE *file = fopen(RPC_HOSTS_FILE, "re");
    while (file && !found && (at = fgets(line, sizeof line, file))) {
        const char *address = next_word(&at);
        while (address && !found && (word = next_word(&at)))
            if (strcasecmp(word, name) == 0) found = rpc_read_address(address, port, to);
    }
    if (file) fclose(file);
    return found;
}

typedef struct name_servers {
    rpc_address servers[MAX_SERVERS];
    socklen_t bytes[MAX_SERVERS];
    int count, searches;
    char search[MAX_SEARCHES][RPC_HOST]; /* ends of names */
} name_servers;

static void read_servers(name_servers *all) {
    char line[MAX_LINE], *at, *word;
    FILE *file = fopen(RPC_RESOLV_FILE, "re");
    memset(all, 0, sizeof *all);
    while (file && (at = fgets(line, sizeof line, file))) {
        const char *what = next_word(&at);
        if (!what) continue;
        if (strcmp(what, "nameserver") == 0 && all->count < MAX_SERVERS && (word = next_word(&at))) {
            const socklen_t bytes = rpc_read_address(word, RPC_DNS_PORT, &all->servers[all->count]);
            if (bytes) all->bytes[all->count++] = bytes;
        } else if (strcmp(what, "search") == 0 || strcmp(what, "domain") == 0) {
            all->searches = 0; /* the last line counts */
            while (all->searches < MAX_SEARCHES && (word = next_word(&at)))
                if (rpc_is_name(word)) (void)snprintf(all->search[all->searches++], RPC_HOST, "%s", word);
        }
    }
    if (file) fclose(file);
}

/* ---- questions and answers --------------------------------------------------------------------------------------- */

static void put_16(unsigned char *at, unsigned value) { at[0] = (unsigned char)(value >> 8), at[1] = (unsigned char)value; }
static unsigned get_16(const unsigned char *at) { return (unsigned)(at[0] << 8 | at[1]); }

/* A question; its bytes, or 0 for a name that cannot be asked for. */
static size_t write_question(unsigned char *to, unsigned number, const char *name, unsigned type) {
    size_t at = HEADER;
    memset(to, 0, HEADER);
    put_16(to, number);
    put_16(to + 2, 0x0100); /* recursion is desired */
    put_16(to + 4, 1);      /* one question */
    if (strlen(name) >= RPC_HOST) return 0;
    while (*name) {
        const size_t label = strcspn(name, ".");
        if (label == 0 || label > MAX_LABEL) return 0;
        to[at++] = (unsigned char)label;
        memcpy(to + at, name, label);
        at += label, name += label + (name[label] == '.');
    }
    to[at++] = 0;
    put_16(to + at, type);
    put_16(to + at + 2, CLASS_IN);
    return at + 4;
}

/* The place behind a name; 0: there is none in the message. */
static size_t behind_name(const unsigned char *message, size_t bytes, size_t at) {
    while (at < bytes) {
        const unsigned label = message[at];
        if (label == 0) return at + 1;
        if (label >= 0xc0) return at + 2 <= bytes ? at + 2 : 0; /* the rest stands elsewhere */
        if (label > MAX_LABEL) return 0;
        at += label + 1;
    }
    return 0;
}

/* The first address of an answer to the question; 0: there is none. Aliases stand before the addresses they lead to. */
static socklen_t read_answer(const unsigned char *message, size_t bytes, size_t question, unsigned type, int port,
                             rpc_address *to) {
    const size_t length = type == TYPE_A ? 4 : 16;
    size_t at = question; /* the answer repeats it */
    if (bytes < question) return 0;
    for (unsigned left = get_16(message + 6); left; left--) {
        at = behind_name(message, bytes, at);
        if (!at || at + 10 > bytes) return 0;
        const unsigned kind = get_16(message + at), class = get_16(message + at + 2), size = get_16(message + at + 8);
        at += 10;
        if (size > bytes - at) return 0;
        if (kind == type && class == CLASS_IN && size == length) {
            char text[INET6_ADDRSTRLEN];
            if (!inet_ntop(type == TYPE_A ? AF_INET : AF_INET6, message + at, text, sizeof text)) return 0;
            return rpc_read_address(text, port, to);
        }
        at += size;
    }
    return 0;
}

/* Asks one server; `told`: it has answered, whatever it knows. */
static socklen_t ask(const name_servers *all, int server, const char *name, unsigned type, int port, rpc_address *to,
                     int64_t deadline, bool *told) {
    unsigned char question[HEADER + RPC_HOST + 6], answer[MESSAGE], random[2];
    const size_t bytes = rpc_random(random, sizeof random) ? write_question(question, get_16(random), name, type) : 0;
    const int64_t end = weft_nanoseconds() + ANSWER_NANOSECONDS, until = end < deadline ? end : deadline;
    socklen_t found = 0;
    const int fd = bytes ? socket(all->servers[server].any.sa_family, SOCK_DGRAM, 0) : -1;
    if (fd < 0) return 0;
    bool waits = !fcntl(fd, F_SETFD, FD_CLOEXEC) && !fcntl(fd, F_SETFL, O_NONBLOCK) &&
                 !connect(fd, &all->servers[server].any, all->bytes[server]) && send(fd, question, bytes, 0) >= 0;
    while (waits && rpc_ready(fd, POLLIN, until)) {
        const ssize_t got = recv(fd, answer, sizeof answer, 0);
        if (got < 0) break; /* nobody is there */
        /* Of another question, or not an answer: somebody else has sent it. */
        if ((size_t)got < bytes || memcmp(answer, question, 2) || !(answer[2] & 0x80) || get_16(answer + 4) != 1 ||
            memcmp(answer + HEADER, question + HEADER, bytes - HEADER))
            continue;
        const unsigned code = answer[3] & 15;
        *told = code == 0 || code == 3; /* it exists or does not; other codes: ask another server */
        found = code == 0 ? read_answer(answer, (size_t)got, bytes, type, port, to) : 0;
        waits = false;
    }
    close(fd);
    return found;
}

static socklen_t ask_all(const name_servers *all, const char *name, int port, rpc_address *to, int64_t deadline) {
    static const unsigned types[] = {TYPE_A, TYPE_AAAA};
    for (int t = 0; t < 2; t++) {
        bool told = false;
        for (int n = 0; n < ROUNDS * all->count && !told && weft_nanoseconds() < deadline; n++) {
            const socklen_t bytes = ask(all, n % all->count, name, types[t], port, to, deadline, &told);
            if (bytes) return bytes;
        }
    }
    return 0;
}

socklen_t rpc_resolve(const char *name, int port, rpc_address *to, int64_t deadline) {
    name_servers all;
    char whole[2 * RPC_HOST];
    if (!rpc_is_name(name)) return 0;
    if (strcasecmp(name, "localhost") == 0) return rpc_read_address("127.0.0.1", port, to); /* RFC 6761 */
    socklen_t bytes = in_hosts(name, port, to);
    if (bytes) return bytes;
    read_servers(&all);
    const bool has_dot = strchr(name, '.') != NULL, is_whole = name[strlen(name) - 1] == '.';
    if (has_dot) bytes = ask_all(&all, name, port, to, deadline);
    for (int i = 0; i < all.searches && !bytes && !is_whole; i++) {
        (void)snprintf(whole, sizeof whole, "%s.%s", name, all.search[i]);
        bytes = ask_all(&all, whole, port, to, deadline);
    }
    return bytes || has_dot ? bytes : ask_all(&all, name, port, to, deadline);
}
