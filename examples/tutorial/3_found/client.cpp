// The command line of a store.
//     kv texts put NAME <FILE
//     kv texts get NAME >FILE
//     kv texts names PREFIX
#include <cstdio>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "remote_store.hpp"

int main(int count, char** words) {
    if (count != 4) {
        std::fprintf(stderr, "usage: kv STORE put|get|names NAME\nexample: kv texts names \"\"\n");
        return 2;
    }
    try {
        const std::string command = words[2], name = words[3];
        remote_store store(words[1]);
        if (command == "put") {
            store.put(name, {std::istreambuf_iterator<char>(std::cin), {}});
        } else if (command == "get") {
            const std::vector<char> value = store.get(name);
            std::cout.write(value.data(), static_cast<std::streamsize>(value.size()));
        } else {
            for (const std::string& each : store.names(name))
                std::cout << each << '\n';
        }
    } catch (const am::error& why) {
        std::fprintf(stderr, "kv: %s\n", why.what());
        return 1;
    }
}
