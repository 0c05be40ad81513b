// Values from standard input and to standard output, of any size.
//     store_client shm://kv 1 put NAME <FILE
//     store_client shm://kv 1 get NAME >FILE
//     store_client shm://kv 1 names PREFIX
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include <amalgam/bulk.hpp>
#include <amalgam/rpc.hpp>

int main(int count, char** words) {
    if (count != 5) {
        std::fprintf(stderr, "usage: store_client URI PROVIDER put|get|names NAME\n");
        return 2;
    }
    try {
        const std::string address = words[1], command = words[3], name = words[4];
        const auto provider = static_cast<std::uint16_t>(std::atoi(words[2]));
        am::engine client{am::uri::parse(address).scheme + "://"};
        const am::peer there = client.lookup(address);

        if (command == "put") {
            const std::vector<char> value{std::istreambuf_iterator<char>(std::cin), {}};
            const am::exposed shown =
                am::expose(client, value);  // peers may read it while it lives
            auto put = client.procedure<void(std::string, am::bulk)>("kv.put").on(there, provider);
            put(name, shown);
        } else if (command == "get") {
            auto get = client.procedure<am::bulk(std::string)>("kv.get").on(there, provider);
            const std::vector<char> value = get(name).pull_all<char>();
            std::cout.write(value.data(), static_cast<std::streamsize>(value.size()));
        } else {
            auto names = client.procedure<am::streamed<std::string>(std::string)>("kv.names")
                             .on(there, provider);
            for (const std::string& each : names(name))
                std::cout << each << '\n';
        }
    } catch (const am::error& why) {
        std::fprintf(stderr, "store_client: %s\n", why.what());
        return 1;
    }
}
