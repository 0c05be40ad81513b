// Its client.
//     call_client shm://kv put NAME VALUE
//     call_client shm://kv get NAME
#include <cstdio>
#include <string>

#include <amalgam/rpc.hpp>

int main(int count, char** words) {
    if (count < 4) {
        std::fprintf(stderr, "usage: call_client URI put NAME VALUE | URI get NAME\n");
        return 2;
    }
    try {
        const std::string address = words[1];
        am::engine client{am::uri::parse(address).scheme + "://"};  // can call, does not listen
        const am::peer there = client.lookup(address);
        auto put = client.procedure<void(std::string, std::string)>("put").on(there);
        auto get = client.procedure<std::string(std::string)>("get").on(there);
        if (count == 5)
            put(words[3], words[4]);
        else
            std::printf("%s\n", get(words[3]).c_str());
    } catch (const am::error& why) {
        std::fprintf(stderr, "call_client: %s\n", why.what());
        return 1;
    }
}
