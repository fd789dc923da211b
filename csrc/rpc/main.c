/* weft-rpc-server: runs code for clients on other machines. docs/remote.md says how to use it. */
#include "listen.h"
#include "options.h"

int main(int count, char **words) {
    static rpc_options options;
    const int status = rpc_read_options(count, words, &options);
    return status >= 0 ? status : rpc_listen(&options);
}
