// Values that must be zero in steady state: allocations per message and per call, in both processes
// together, and the CPU time of an idle engine.
//   steady_state message-shm|message-tcp|rpc-shm|rpc-tcp|idle-cpu
#include <cstdio>
#include <string>
#include <string_view>
#include <thread>

#include <fmt/format.h>
#include <time.h>

#include <amalgam/fabric/transport.hpp>
#include <amalgam/rpc/engine.hpp>

#include "counted_malloc.hpp"
#include "perf/pair.hpp"

namespace {

using namespace amalgam;

constexpr int warm_up = 20'000;
constexpr int measured = 200'000;

struct nothing final : completion {
    nothing() : completion([](completion&, status, std::size_t) noexcept {}) {}
};

class echo final : public message_sink {
public:
    explicit echo(port& at) : at_(at) {}
    void on_message(message& m) noexcept override {
        const const_bytes bytes = m.bytes();
        (void)at_.post_send(m.from(), m.tag(), gather(&bytes, 1), op_);
    }

private:
    port& at_;
    nothing op_;
};

class counter final : public message_sink {
public:
    void on_message(message&) noexcept override { ++count; }
    int count = 0;
};

/// Allocations here and in the peer while `many(n)` does n operations, per operation.
template <typename Many>
double per_operation(perf::channel& talk, Many&& many) {
    many(warm_up);
    talk.write_line("begin");
    talk.read_line();
    const auto before = bench::allocations();
    many(measured);
    const auto ours = bench::allocations() - before;
    talk.write_line("end");
    const auto theirs = std::stoull(talk.read_line());
    return static_cast<double>(ours + theirs) / measured;
}

/// The peer's side of per_operation().
void report_allocations(perf::channel& talk) {
    talk.read_line();
    talk.write_line("counting");
    const auto before = bench::allocations();
    talk.read_line();
    const auto after = bench::allocations();
    talk.write_line(std::to_string(after - before));
}

double per_message(const std::string& uri) {
    perf::forked_peer peer([&](perf::channel& talk) {
        auto at = transport_registry::native().open(uri).value();
        echo sink(*at);
        at->set_sink(&sink);
        talk.write_line(at->address());
        std::thread control([&] { report_allocations(talk); });
        for (unsigned idle = 0; idle < (1u << 28) && !talk.closed();) {
            for (int i = 0; i < 4096; ++i)
                idle = at->progress() != 0 ? 0 : idle + 1;
        }
        control.join();
    });
    auto at = transport_registry::native().open(uri).value();
    counter sink;
    at->set_sink(&sink);
    const peer_id there = at->lookup(peer.talk().read_line()).value();
    nothing op;
    std::uint64_t payload = 0;
    const const_bytes bytes = as_bytes_of(payload);
    return per_operation(peer.talk(), [&](int n) {
        for (int i = 0; i < n; ++i) {
            const int expected = sink.count + 1;
            while (at->post_send(there, 1, gather(&bytes, 1), op) == posted::full)
                at->progress();
            while (sink.count != expected)
                at->progress();
        }
    });
}

double per_call(const std::string& uri) {
    perf::forked_peer peer([&](perf::channel& talk) {
        engine server(uri, {.spin = always_spin});
        server.define("sum", [](int a, int b) { return a + b; });
        talk.write_line(server.address());
        report_allocations(talk);
        talk.read_line();  // Until the measuring process ends.
    });
    engine client(uri, {.spin = always_spin});
    const auto sum =
        client.procedure<int(int, int)>("sum").on(client.lookup(peer.talk().read_line()));
    return client.run([&] {
        return per_operation(peer.talk(), [&](int n) {
            for (int i = 0; i < n; ++i)
                (void)sum(i, 1);
        });
    });
}

/// Percent of one processor, over two seconds, used by a process whose engine has a connected peer.
double idle_cpu() {
    engine server({"shm://", "tcp://127.0.0.1:0"});
    server.define("sum", [](int a, int b) { return a + b; });
    engine client({"shm://", "tcp://"});
    const auto sum = client.procedure<int(int, int)>("sum");
    for (const auto& address : server.addresses())
        (void)sum.on(client.lookup(address))(1, 2);
    const auto cpu = [] {
        timespec now{};
        ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
        return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
    };
    std::this_thread::sleep_for(std::chrono::milliseconds(200));  // Past the adaptive spin.
    const double before = cpu();
    std::this_thread::sleep_for(std::chrono::seconds(2));
    return (cpu() - before) / 2 * 100;
}

}  // namespace

int main(int argc, char** argv) {
    const std::string_view what = argc == 2 ? argv[1] : "";
    double value = 0;
    if (what == "message-shm") {
        value = per_message("shm://");
    } else if (what == "message-tcp") {
        value = per_message("tcp://127.0.0.1:0");
    } else if (what == "rpc-shm") {
        value = per_call("shm://");
    } else if (what == "rpc-tcp") {
        value = per_call("tcp://127.0.0.1:0");
    } else if (what == "idle-cpu") {
        value = idle_cpu();
    } else {
        std::fprintf(stderr, "usage: %s message-shm|message-tcp|rpc-shm|rpc-tcp|idle-cpu\n",
                     argv[0]);
        return 2;
    }
    fmt::print("{{\"test\": \"{}\", \"value\": {}}}\n", what, value);
}
