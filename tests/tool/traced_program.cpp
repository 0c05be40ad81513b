#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/bulk.hpp>
#include <amalgam/rpc.hpp>

// What trace_test traces: a server and a client, in one process or two, that end in several ways.

namespace {

void define(am::engine& server) {
    server.define("leaf", [](int n) { return n + 1; });
    server.define("node", [&server](int n) {
        return server.procedure<int(int)>("leaf").on(am::call_context::current().where().address())(
            n);
    });
    server.define("fails", [] { throw am::error(am::errc::not_found, "no such order"); });
    server.define("slow", [] { am::this_task::sleep_for(std::chrono::milliseconds(30)); });
    server.define("note", [](std::string) {});
    server.define("size", [](am::bulk text) { return text.pull_all().size(); });
}

void call(am::engine& client, const std::string& at, int calls) {
    const am::peer there = client.lookup(at);
    for (int i = 0; i < calls; ++i)
        if (client.procedure<int(int)>("node").on(there)(i) != i + 1) std::abort();
}

void call_all(am::engine& client, const std::string& at) {
    const am::peer there = client.lookup(at);
    call(client, at, 2);
    if (client.procedure<void()>("fails").on(there).try_call().ok()) std::abort();
    client.procedure<void(std::string)>("note").on(there).post("hello");
    const std::vector<std::byte> text(1 << 20);
    const am::exposed shown = am::expose(client, text);
    if (client.procedure<std::size_t(am::bulk)>("size").on(there)(shown) != text.size())
        std::abort();
}

void one_process(int calls) {
    am::engine server{"shm://"};
    define(server);
    am::engine client{"shm://"};
    call(client, server.address(), calls);
}

/// Streams of values: 100 to a handler, 100 from one, with a window of 10.
void streams() {
    am::engine server{"shm://"};
    server.define("count", [](am::stream_writer<int>& out, int to) {
        for (int i = 0; i < to; ++i)
            out(i);
    });
    server.define("add_up", [](am::stream_reader<int>& in) {
        in.window(10);
        int sum = 0;
        for (const int each : in)
            sum += each;
        return sum;
    });
    am::engine client{"shm://"};
    const am::peer there = client.lookup(server.address());
    int sum = 0;
    for (const int each :
         client.procedure<am::streamed<int>(int)>("count").on(there).window(10)(100))
        sum += each;
    auto up = client.procedure<int(am::streaming<int>)>("add_up").on(there).open();
    for (int i = 0; i < 100; ++i)
        up.send(i);
    if (up.get() != sum) std::abort();
}

/// A server process, whose address it writes to its standard output. Ends with its input.
void serve() {
    am::engine server{"tcp://127.0.0.1:0"};
    define(server);
    std::printf("%s\n", server.address().c_str());
    std::fflush(stdout);
    while (std::getchar() != EOF) {
    }
    server.stop();
}

void two_processes(const char* self) {
    int to[2];
    int from[2];
    if (::pipe(to) != 0 || ::pipe(from) != 0) std::abort();
    const pid_t child = ::fork();
    if (child == 0) {
        ::dup2(to[0], 0);
        ::dup2(from[1], 1);
        for (const int each : {to[0], to[1], from[0], from[1]})
            ::close(each);
        ::execl(self, self, "serve", nullptr);
        ::_exit(127);
    }
    ::close(to[0]);
    ::close(from[1]);
    std::string address;
    for (char c; ::read(from[0], &c, 1) == 1 && c != '\n';)
        address += c;
    {
        am::engine client{"tcp://"};
        call_all(client, address);
    }
    ::close(to[1]);
    int how = 0;
    ::waitpid(child, &how, 0);
}

}  // namespace

int main(int argc, char** argv) {
    const std::string what = argc > 1 ? argv[1] : "";
    if (what == "calls") {
        one_process(std::atoi(argv[2]));
    } else if (what == "serve") {
        serve();
    } else if (what == "two") {
        two_processes(argv[0]);
    } else if (what == "killed") {
        am::engine server{"shm://"};
        define(server);
        am::engine client{"shm://"};
        call(client, server.address(), 3);
        ::raise(SIGKILL);
    } else if (what == "fork") {
        one_process(1);
        const pid_t child = ::fork();
        if (child == 0) {
            one_process(2);
            ::_exit(0);
        }
        int how = 0;
        ::waitpid(child, &how, 0);
        one_process(3);
        return how == 0 ? 0 : 1;
    } else if (what == "exec") {
        one_process(1);
        ::execl(argv[0], argv[0], "calls", "2", nullptr);
        return 1;
    } else if (what == "slow") {
        am::engine server{"shm://"};
        define(server);
        am::engine client{"shm://"};
        call(client, server.address(), 1);
        client.procedure<void()>("slow").on(client.lookup(server.address()))();
    } else if (what == "streams") {
        streams();
    } else if (what == "exit") {
        return std::atoi(argv[2]);
    }
    return 0;
}
