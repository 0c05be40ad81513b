// The same two stores, registered with the directory: clients need no address.
//     kv_server shm://
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <unistd.h>

#include <amalgam/directory.hpp>
#include <amalgam/rpc.hpp>

#include "../2_store/store.hpp"

int main(int count, char** words) {
    if (count < 2) {
        std::fprintf(stderr, "usage: kv_server URI...\nexample: kv_server shm://\n");
        return 2;
    }
    try {
        am::engine server{std::vector<std::string>(words + 1, words + count)};
        am::provider<store> texts(server, "texts", std::make_shared<store>(server),
                                  {.provider = 1});
        am::provider<store> images(server, "images", std::make_shared<store>(server),
                                   {.provider = 2});
        am::context here{server};  // joins the directory
        std::vector<am::resource> registered;
        for (am::provider<store>* each : {&texts, &images}) {
            each->define("kv.put", &store::put);
            each->define("kv.get", &store::get);
            each->define("kv.names", &store::names);
            registered.push_back(here.add({{"type", "kv"},
                                           {"store", each == &texts ? "texts" : "images"},
                                           {"provider", std::to_string(each->id())}}));
        }
        std::printf("registered 2 stores\n");
        std::fflush(stdout);
        ::pause();
    } catch (const am::error& why) {
        std::fprintf(stderr, "kv_server: %s\n", why.what());
        return 1;
    }
}
