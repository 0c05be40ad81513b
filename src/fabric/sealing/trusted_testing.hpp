#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/random.hpp>
#include <amalgam/fabric/transport.hpp>

#include "contains.hpp"
#include "fabric/transports/tcp/tls_raw_peer.hpp"
#include "fabric/trust/tls/tls_testing.hpp"

namespace amalgam::detail {

/// For tests of plug-ins over TLS: whom all trust. Made before any test runs, so that a test and
/// the processes that it forks have the same one.
inline test_lab& shared_lab() {
    static test_lab made;
    return made;
}

struct shared_lab_environment : testing::Environment {
    void SetUp() override { (void)shared_lab(); }
};

inline port_options trusting(std::shared_ptr<const credentials> trust = shared_lab().trust) {
    port_options options;
    options.trust = std::move(trust);
    return options;
}

/// Why a port is not opened; "opened" if it is.
inline std::string refusal(const std::string& where, const port_options& with = trusting()) {
    auto opened = transport_registry::installed().open(where, with);
    return opened ? "opened" : opened.sentence();
}

/// The plug-in `name`, whose ports have the shared lab's credentials.
class trusted_plugin final : public transport {
public:
    explicit trusted_plugin(std::string name) : name_(std::move(name)) {}
    std::string_view name() const noexcept override { return name_; }
    transport_info describe() const override { return all_.find(name_)->describe(); }
    result<std::unique_ptr<port>> open(const uri& where,
                                       const port_options& options) const override {
        port_options with = options;
        with.trust = shared_lab().trust;
        return all_.open(to_string(where), with);
    }

private:
    std::string name_;
    transport_registry all_ = transport_registry::installed();
};

inline transport_registry trusted_registry(const std::string& name) {
    transport_registry only;
    only.add(std::make_unique<trusted_plugin>(name));
    return only;
}

/// Sends an invalid introduction, over TLS or in its place, and returns once the other end has
/// disconnected.
inline void send_wrong_sealed_introduction(const std::string& address, std::uint64_t seed) {
    seeded_random dice(seed);
    const auto noise = [&](std::size_t bytes) {
        std::vector<std::byte> made(bytes);
        for (std::byte& one : made)
            one = static_cast<std::byte>(dice());
        return made;
    };
    if (dice.chance(0.3)) {
        tcp_raw_peer at("tcp" + address.substr(address.find("://")));
        at.send(noise(16 + dice.below(2000)));
        ::shutdown(at.fd(), SHUT_WR);
        return at.wait_for_the_end();
    }
    const ssl_context_ptr context = bare_context(shared_lab().authority, &shared_lab().node);
    tls_raw_peer at(address, *context);
    if (!at.shake_hands_of_tls() || !at.shake_hands()) return;
    constexpr std::uint64_t introduction_tag = 0x316f7274'6c616d41u;
    std::vector<std::byte> introduction = noise(8);
    const std::string scheme = address.substr(0, address.find("://"));
    const auto append = [&](std::string_view text) {
        for (const std::byte each : as_bytes_of(text))
            introduction.push_back(each);
    };
    const std::string head{static_cast<char>(scheme.size()), '\0'};
    switch (dice.below(5)) {
        case 0:  // Too short, or ends within its scheme.
            introduction = noise(dice.below(12));
            break;
        case 1:  // Of another kind.
            append(std::string("\4\0loop", 6));
            break;
        case 2:  // Without ciphers.
            append(head + scheme);
            break;
        case 3:  // With none that anybody has.
            append(head + scheme + '\0');
            break;
        default:  // Of one that does not encrypt.
            append(std::string("\7\0ofi+tcp", 9));
            break;
    }
    at.send_frame({.kind = frame_kind::unexpected, .tag = introduction_tag}, introduction);
    ::shutdown(at.fd(), SHUT_WR);
    at.wait_for_the_end();
}

}  // namespace amalgam::detail
