#include <cstdio>

#include <amalgam/rpc.hpp>

int main() {
    am::engine server{"tcp://127.0.0.1:0"};                    // or "shm://"
    server.define("sum", [](int a, int b) { return a + b; });  // runs as a user-level thread

    am::engine client{"tcp://"};  // can call, does not listen
    auto sum = client.procedure<int(int, int)>("sum");
    std::printf("%d\n", sum.on(client.lookup(server.address()))(2, 3));
}
