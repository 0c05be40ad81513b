#include "fabric/transports/tcp/tcp.hpp"

#include <amalgam/core/random.hpp>

#include "conformance/transport_suite.hpp"
#include "fabric/transports/tcp/raw_peer.hpp"
#include "fabric/transports/tcp/tls_raw_peer.hpp"

namespace amalgam::detail {
namespace {

std::vector<std::byte> noise(seeded_random& dice, std::size_t bytes) {
    std::vector<std::byte> made(bytes);
    for (std::byte& one : made)
        one = static_cast<std::byte>(dice());
    return made;
}

template <typename Peer>
void before_the_hello(Peer& at, seeded_random& dice) {
    switch (dice.below(4)) {
        case 0:
            at.send(noise(dice, 16 + dice.below(2000)));
            break;
        case 1:
            at.send("GET /index.html HTTP/1.1\r\nHost: here\r\n\r\n");
            break;
        case 2: {
            // A hello with one wrong byte; where that is harmless, noise follows.
            const encoded_hello right({.incarnation = 1});
            std::vector<std::byte> wire(right.bytes().begin(), right.bytes().end());
            wire[dice.below(wire.size())] ^= std::byte{0x55};
            at.send(wire);
            at.send(noise(dice, 2000));
            break;
        }
        default: {
            // Frames without a hello.
            at.send_frame({.kind = frame_kind::unexpected, .tag = 1}, noise(dice, 100));
            break;
        }
    }
}

template <typename Peer>
void after_the_hello(Peer& at, seeded_random& dice) {
    at.shake_hands();
    switch (dice.below(5)) {
        case 0: {  // A frame kind that no release has.
            at.send_frame(
                {.kind = static_cast<frame_kind>(static_cast<unsigned>(frame_kind::last_of_port) +
                                                 1 + dice.below(245))},
                noise(dice, 10));
            break;
        }
        case 1: {  // Longer than any message may be.
            wire_header header = to_wire({.bytes = 0xffffff00u, .kind = frame_kind::expected});
            at.send(header);
            break;
        }
        case 2: {  // An answer without a request.
            at.send_frame({.kind = frame_kind::get_data, .tag = dice()}, noise(dice, 5000));
            at.send_frame({.kind = static_cast<frame_kind>(99)}, {});
            break;
        }
        case 3: {  // Cut in the middle of a small or large frame.
            at.send(to_wire({.bytes = 50'000, .kind = frame_kind::unexpected}));
            at.send(noise(dice, dice.below(50'000)));
            ::shutdown(at.fd(), SHUT_WR);
            break;
        }
        default: {  // An invalid put, get or atomic operation.
            constexpr frame_kind kinds[] = {frame_kind::put, frame_kind::get,
                                            frame_kind::put_notify, frame_kind::fetch_add,
                                            frame_kind::compare_swap};
            const frame_kind kind = kinds[dice.below(std::size(kinds))];
            at.send_frame({.kind = kind, .tag = 3}, noise(dice, dice.below(56)));
            break;
        }
    }
}

const bool described = conformance::describe_transport(
    "tcp", {.send_garbage = [](const std::string& address, std::uint64_t seed) {
        seeded_random dice(seed);
        tcp_raw_peer at(address);
        dice.chance(0.5) ? before_the_hello(at, dice) : after_the_hello(at, dice);
        at.wait_for_the_end();
    }});

/// Both families of addresses; the first alone where tests are slow.
std::vector<std::string> families(const std::string& first, const std::string& other) {
    if (conformance::slow_build) return {first};
    return {first, other};
}

INSTANTIATE_TEST_SUITE_P(tcp, transport_suite,
                         testing::ValuesIn(families("tcp://127.0.0.1:0", "tcp://[::1]:0")));

// ---- the same over TLS

test_lab& lab() {
    static test_lab made;
    return made;
}

/// Made before any test runs, so that a test and the processes that it forks have the same one.
struct same_lab : testing::Environment {
    void SetUp() override { (void)lab(); }
};
[[maybe_unused]] const testing::Environment* const same_for_all =
    testing::AddGlobalTestEnvironment(new same_lab);

/// tcp, with credentials for whoever asks for TLS.
class trusted_tcp final : public transport {
public:
    std::string_view name() const noexcept override { return inside_->name(); }
    transport_info describe() const override { return inside_->describe(); }
    result<std::unique_ptr<port>> open(const uri& where,
                                       const port_options& options) const override {
        port_options with = options;
        with.trust = lab().trust;
        return inside_->open(where, with);
    }

private:
    std::unique_ptr<transport> inside_ = make_tcp_transport();
};

transport_registry trusted_registry() {
    transport_registry only;
    only.add(std::make_unique<trusted_tcp>());
    return only;
}

void send_sealed_garbage(const std::string& address, std::uint64_t seed) {
    seeded_random dice(seed);
    if (dice.chance(0.3)) {  // Before TLS, or instead of it.
        tcp_raw_peer at("tcp" + address.substr(address.find("://")));
        before_the_hello(at, dice);
        return at.wait_for_the_end();
    }
    const ssl_context_ptr context = bare_context(lab().authority, &lab().node);
    tls_raw_peer at(address, *context);
    if (dice.chance(0.2)) {  // Within it.
        at.plain().send(noise(dice, 1 + dice.below(400)));
        ::shutdown(at.fd(), SHUT_WR);
        return at.plain().wait_for_the_end();
    }
    if (!at.shake_hands_of_tls()) return;
    if (dice.chance(0.2)) {  // A record that is none.
        at.plain().send(noise(dice, 30'000));
        return at.plain().wait_for_the_end();
    }
    dice.chance(0.3) ? before_the_hello(at, dice) : after_the_hello(at, dice);
    at.wait_for_the_end();
}

const bool sealed_described = conformance::describe_transport(
    "tcp+tls", {.registry = &trusted_registry, .send_garbage = &send_sealed_garbage});

[[maybe_unused]] const bool of_the_other_family =
    conformance::run_briefly("tcp://[::1]:0") && conformance::run_briefly("tcp+tls://[::1]:0");

INSTANTIATE_TEST_SUITE_P(tls, transport_suite,
                         testing::ValuesIn(families("tcp+tls://[::1]:0", "tcp+tls://127.0.0.1:0")));

}  // namespace
}  // namespace amalgam::detail
