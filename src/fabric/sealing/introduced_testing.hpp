#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "fabric/sealing/packet_introducer.hpp"
#include "fabric/sealing/wire_testing.hpp"

namespace amalgam::detail {

/// For tests: one end of a wire whose ends are introduced by the first packets.
class introduced_end {
public:
    explicit introduced_end(std::shared_ptr<const credentials> trust, std::uint8_t ciphers = 2,
                            std::chrono::milliseconds limit = std::chrono::hours(1),
                            std::size_t packet_bytes = 4096)
        : wire_(new wired_carrier),
          here(std::make_unique<packet_introducer>(std::unique_ptr<packet_carrier>(wire_),
                                                   packet_bytes, std::move(trust), limit,
                                                   ciphers)) {
        here->start(events);
    }
    void connect() {
        link = here->connect("wire+path+tls://there").value();
        below = wire_->links.back().get();
    }
    void accept(std::string from = "wire+path://caller") {
        below = &accepted_;
        is_accepted = wire_->events->accepted(accepted_, std::move(from));
        if (is_accepted) link = events.links.back();
    }
    void room() { wire_->events->room(*below); }
    void receive(const packet_bytes_of& bytes) { wire_->events->received(*below, bytes); }
    wired_carrier& wire() noexcept { return *wire_; }

    noted_upcalls events;
    packet_link* link = nullptr;
    wired_carrier::link* below = nullptr;
    bool is_accepted = false;

private:
    wired_carrier::link accepted_;
    wired_carrier* wire_;

public:
    std::unique_ptr<packet_introducer> here;
};

/// Carries packets both ways until there are none; `changes` each before it arrives.
inline void carry(introduced_end& caller, introduced_end& called,
                  const std::function<void(packet_bytes_of&)>& changes = {}) {
    const auto pass = [&](introduced_end& from, introduced_end& to) {
        if (from.below->left.empty()) return false;
        packet_bytes_of next = std::move(from.below->left.front());
        from.below->left.pop_front();
        if (changes) changes(next);
        to.receive(next);
        return true;
    };
    while (pass(caller, called) || pass(called, caller)) {
    }
}

}  // namespace amalgam::detail
