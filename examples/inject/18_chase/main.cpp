// A linked list spread over three processes, traversed by a function that moves to the process of
// the next node: `inject_chase [URI [NODES]]`.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/core.hpp>
#include <amalgam/inject.hpp>

namespace {

constexpr std::size_t processes = 3;

/// As in chase.c.
struct position {
    std::uint64_t node = 0;
    std::uint64_t hops = 0;
    std::uint64_t crossings = 0;
};

/// All nodes in list order; node n belongs to process n % 3.
std::vector<std::uint64_t> make_list(std::size_t nodes) {
    std::vector<std::uint64_t> order(nodes);
    std::iota(order.begin(), order.end(), 0);
    am::seeded_random random(1);
    for (std::size_t i = nodes - 1; i > 1; --i)
        std::swap(order[i], order[1 + random.below(i)]);
    return order;
}

/// The nodes of one process only.
struct store {
    std::size_t mine = 0;
    std::vector<std::string> addresses;
    std::vector<std::uint64_t> next;  // By node; itself: the last, or not ours.
};

extern "C" int next_node(void* in, std::uint64_t node, std::uint64_t* next, const char** owner) {
    const store& here = *static_cast<store*>(in);
    *next = here.next[node];
    if (*next == node) return 0;
    const std::size_t whose = *next % processes;
    *owner = whose == here.mine ? nullptr : here.addresses[whose].c_str();
    return 1;
}

void serve(const std::string& uri, std::size_t mine, std::size_t nodes, int address_to,
           int end_from) {
    store here{mine, {}, std::vector<std::uint64_t>(nodes)};
    std::iota(here.next.begin(), here.next.end(), 0);
    const std::vector<std::uint64_t> order = make_list(nodes);
    for (std::size_t i = 0; i + 1 < nodes; ++i)
        if (order[i] % processes == mine) here.next[order[i]] = order[i + 1];
    am::engine on(uri);
    on.define("others", [&](std::vector<std::string> all) { here.addresses = std::move(all); });
    am::injection_options options;
    options.allows.unsigned_too = true;  // All processes are ours.
    options.exports["next_node"] = reinterpret_cast<void*>(&next_node);
    options.target_args = &here;
    const am::injection_target target(on, options);
    const std::string address = on.address() + "\n";
    if (on.address().empty())
        throw am::error(am::errc::invalid,
                        uri + " does not listen; example: inject_chase tcp://127.0.0.1:0");
    (void)!::write(address_to, address.data(), address.size());
    char end = 0;
    (void)!::read(end_from, &end, 1);
}

std::string read_line(int from) {
    std::string line;
    for (char c = 0; ::read(from, &c, 1) == 1 && c != '\n';)
        line += c;
    return line;
}

int chase(const std::string& uri, const std::vector<std::string>& addresses, std::size_t nodes) {
    am::engine on(uri.starts_with("tcp") ? "tcp://" : uri);
    for (const std::string& each : addresses)
        on.procedure<void(std::vector<std::string>)>("others").on(on.lookup(each))(addresses);
    am::injector inject(on);
    const auto function = inject.add(am::code_image::find("chase"));
    am::injection message = function.create(sizeof(position));
    const position start;
    std::memcpy(message.payload().data(), &start, sizeof(start));
    const auto result = message.call(on.lookup(addresses[0]));
    position end;
    if (result.size() != sizeof(end)) {
        std::fprintf(stderr, "inject_chase: the message got lost on the way\n");
        return 1;
    }
    std::memcpy(&end, result.data(), sizeof(end));
    std::printf("%llu hops, of which %llu between %zu processes\n",
                static_cast<unsigned long long>(end.hops),
                static_cast<unsigned long long>(end.crossings), processes);
    return end.node == make_list(nodes).back() && end.hops == nodes - 1 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    const std::string uri = argc > 1 ? argv[1] : "shm://";
    const std::size_t nodes = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 300;
    if (nodes < 2) {
        std::fprintf(stderr,
                     "inject_chase: expected at least 2 nodes; example: inject_chase "
                     "shm:// 300\n");
        return 2;
    }
    int end[2];
    if (::pipe(end) != 0) return 1;
    std::vector<std::string> addresses;
    std::vector<pid_t> children;
    for (std::size_t i = 0; i < processes; ++i) {
        int address[2];
        if (::pipe(address) != 0) return 1;
        children.push_back(::fork());
        if (children.back() == 0) {
            ::close(end[1]);
            try {
                serve(uri, i, nodes, address[1], end[0]);
            } catch (const am::error& why) {
                if (i == 0) std::fprintf(stderr, "inject_chase: %s\n", why.what());
            }
            return 0;
        }
        ::close(address[1]);
        addresses.push_back(read_line(address[0]));
        ::close(address[0]);
    }
    int code = 1;
    try {
        if (!addresses[0].empty()) code = chase(uri, addresses, nodes);
    } catch (const am::error& why) {
        std::fprintf(stderr, "inject_chase: %s\n", why.what());
    }
    ::close(end[1]);
    for (const pid_t each : children)
        ::waitpid(each, nullptr, 0);
    return code;
}
