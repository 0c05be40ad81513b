#include <iostream>
#include <string>

#include <amalgam/rpc.hpp>

/// Calls a procedure over the transport of the URI given; exit code 0 when the answer is right.
int main(int count, char** words) {
    am::engine server{std::string(count > 1 ? words[1] : "shm://")};
    server.define("sum", [](int a, int b) { return a + b; });

    am::engine client{am::uri::parse(server.address()).scheme + "://"};
    auto sum = client.procedure<int(int, int)>("sum");
    int five = sum.on(client.lookup(server.address()))(2, 3);
    std::cout << "2 + 3 = " << five << " over " << server.address() << '\n';
    return five == 5 ? 0 : 1;
}
