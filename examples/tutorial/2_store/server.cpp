// Two stores in one process, each a provider.
//     store_server shm://kv
#include <cstdio>
#include <memory>

#include <unistd.h>

#include <amalgam/rpc.hpp>

#include "store.hpp"

int main(int count, char** words) {
    if (count != 2) {
        std::fprintf(stderr, "usage: store_server URI\nexample: store_server shm://kv\n");
        return 2;
    }
    try {
        am::engine server{words[1]};
        am::provider<store> texts(server, "texts", std::make_shared<store>(server),
                                  {.provider = 1});
        am::provider<store> images(server, "images", std::make_shared<store>(server),
                                   {.provider = 2});
        for (am::provider<store>* each : {&texts, &images}) {
            each->define("kv.put", &store::put);
            each->define("kv.get", &store::get);
            each->define("kv.names", &store::names);
        }
        std::printf("serving at %s\n", server.address().c_str());
        std::fflush(stdout);
        ::pause();
    } catch (const am::error& why) {
        std::fprintf(stderr, "store_server: %s\n", why.what());
        return 1;
    }
}
