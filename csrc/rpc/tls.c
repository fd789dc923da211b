/* TLS of connections, by OpenSSL. */
#define _GNU_SOURCE
#include "tls.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#if defined(WEFT_RPC_TLS)

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

static SSL_CTX *context, *client;

bool rpc_tls_is_built(void) { return true; }

/* Says why a context cannot be made, and frees it. */
static bool give_up(SSL_CTX **made, const char *otherwise, char *why, size_t room) {
    const char *reason = ERR_reason_error_string(ERR_peek_error());
    (void)snprintf(why, room, "%s", reason ? reason : otherwise);
    SSL_CTX_free(*made);
    *made = NULL;
    return false;
}

bool rpc_tls_prepare(const char *certificate, const char *key, char *why, size_t room) {
    context = SSL_CTX_new(TLS_server_method());
    const bool loaded = context && SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) == 1 &&
                        SSL_CTX_use_certificate_chain_file(context, certificate) == 1 &&
                        SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) == 1 &&
                        SSL_CTX_check_private_key(context) == 1;
    if (loaded) {
        (void)SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
        (void)SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
        return true;
    }
    return give_up(&context, "these are no certificate and its key", why, room);
}

bool rpc_tls_prepare_client(const char *trusted, char *why, size_t room) {
    client = SSL_CTX_new(TLS_client_method());
    if (client && SSL_CTX_set_min_proto_version(client, TLS1_2_VERSION) == 1 &&
        SSL_CTX_load_verify_locations(client, trusted, NULL) == 1) {
        SSL_CTX_set_verify(client, SSL_VERIFY_PEER, NULL);
        (void)SSL_CTX_set_mode(client, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
        return true;
    }
    return give_up(&client, "these are no certificates", why, room);
}

/* What a call did that returned `result`, in the manner of the system's calls. */
static ssize_t told(rpc_link *link, int result, short *events) {
    const int error = SSL_get_error(link->tls, result);
    errno = EAGAIN;
    if (error == SSL_ERROR_WANT_READ) return *events = POLLIN, -1;
    if (error == SSL_ERROR_WANT_WRITE) return *events = POLLOUT, -1;
    errno = ECONNRESET;
    return error == SSL_ERROR_ZERO_RETURN ? 0 : -1;
}

static bool begin(rpc_link *link, SSL_CTX *made_by) {
    link->tls = SSL_new(made_by);
    if (link->tls && SSL_set_fd(link->tls, link->fd) == 1) return true;
    (void)snprintf(link->why, sizeof link->why, "there is no memory for TLS");
    return false;
}

static bool shake_hands(rpc_link *link, int (*step)(SSL *), int64_t end, const char *why) {
    for (;;) {
        short events = 0;
        ERR_clear_error();
        const int result = step(link->tls);
        if (result == 1) return true;
        if (told(link, result, &events) < 0 && errno == EAGAIN && rpc_ready(link->fd, events, end)) continue;
        (void)snprintf(link->why, sizeof link->why, "%s", why);
        return false;
    }
}

bool rpc_tls_accept(rpc_link *link, int64_t end) {
    if (!context) return true;
    return begin(link, context) &&
           shake_hands(link, SSL_accept, end, "the other side does not speak TLS, or refuses the certificate");
}

bool rpc_tls_connect(rpc_link *link, const char *host, int64_t end) {
    if (!client) return true;
    if (!begin(link, client)) return false;
    /* Addresses in numbers stand in certificates as such, and are no names for the server to choose one by. */
    const bool number = X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(link->tls), host) == 1;
    if (!number && (SSL_set1_host(link->tls, host) != 1 || SSL_set_tlsext_host_name(link->tls, host) != 1)) {
        (void)snprintf(link->why, sizeof link->why, "there is no memory for TLS");
        return false;
    }
    return shake_hands(link, SSL_connect, end, "it does not speak TLS, or its certificate is not trusted for this name");
}

void rpc_tls_end(rpc_link *link) {
    if (!link->tls) return;
    (void)SSL_shutdown(link->tls);
    SSL_free(link->tls);
    link->tls = NULL;
}

bool rpc_tls_has_bytes(const rpc_link *link) { return link->tls && SSL_has_pending(link->tls); }

ssize_t rpc_tls_read(rpc_link *link, void *to, size_t bytes, short *events) {
    ERR_clear_error();
    const int result = SSL_read(link->tls, to, bytes < 1 << 30 ? (int)bytes : 1 << 30);
    return result > 0 ? result : told(link, result, events);
}

ssize_t rpc_tls_write(rpc_link *link, const void *from, size_t bytes, short *events) {
    ERR_clear_error();
    const int result = SSL_write(link->tls, from, bytes < 1 << 30 ? (int)bytes : 1 << 30);
    return result > 0 ? result : told(link, result, events);
}

#else

bool rpc_tls_is_built(void) { return false; }

bool rpc_tls_prepare(const char *certificate, const char *key, char *why, size_t room) {
    (void)certificate, (void)key;
    (void)snprintf(why, room, "this server is built without TLS (make TLS=1 builds it with OpenSSL)");
    return false;
}

bool rpc_tls_prepare_client(const char *trusted, char *why, size_t room) {
    return rpc_tls_prepare(trusted, NULL, why, room);
}

bool rpc_tls_accept(rpc_link *link, int64_t end) { return (void)link, (void)end, true; }
bool rpc_tls_connect(rpc_link *link, const char *host, int64_t end) { return (void)link, (void)host, (void)end, true; }
void rpc_tls_end(rpc_link *link) { (void)link; }
bool rpc_tls_has_bytes(const rpc_link *link) { return (void)link, false; }

static ssize_t refuse(void) {
    errno = ENOTSUP;
    return -1;
}

ssize_t rpc_tls_read(rpc_link *link, void *to, size_t bytes, short *events) {
    return (void)link, (void)to, (void)bytes, (void)events, refuse();
}

ssize_t rpc_tls_write(rpc_link *link, const void *from, size_t bytes, short *events) {
    return (void)link, (void)from, (void)bytes, (void)events, refuse();
}

#endif
