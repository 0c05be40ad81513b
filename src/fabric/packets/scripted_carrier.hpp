#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fabric/packets/introduced_carrier.hpp"
#include "fabric/port/scripted_port.hpp"

namespace amalgam::detail {

// As in docs/wire/packets.md.
inline constexpr std::uint64_t introduction_tag = 0x316f72746c616d41u;
inline constexpr std::uint64_t farewell_tag = introduction_tag + 1;

/// Paths that move nothing: the test decides what arrives.
class scripted_carrier final : public introduced_carrier {
public:
    struct link final : introduced_link {
        posted send(packet&) noexcept override {
            count_sent();
            return posted::done;
        }
    };

    scripted_carrier(std::unique_ptr<port> inner, int& released, introduction_trust trust = {})
        : introduced_carrier(
              {std::move(inner), trust.export_key == nullptr ? "test+tcp" : "test+tcp+tls", trust}),
          released_(released) {}
    ~scripted_carrier() { end_introductions(); }

    using introduced_carrier::arrived;

protected:
    const_bytes own_name(const introduced_link&) const noexcept override { return {}; }
    std::string explain_paths() const override { return "a test asked for it"; }
    std::unique_ptr<introduced_link> make_link() override { return std::make_unique<link>(); }
    status open_path(introduced_link&, const_bytes) noexcept override { return {}; }
    void close_path(introduced_link&, bool) noexcept override {}
    void release_path(std::unique_ptr<introduced_link>) noexcept override { ++released_; }
    std::size_t move_packets(std::size_t) noexcept override { return 0; }
    bool arm_paths() noexcept override { return true; }

private:
    int& released_;
};

/// Records the upcalls that a port would get.
struct noted_events final : packet_events {
    bool accepted(packet_link& link, std::string address) noexcept override {
        if (no_memory) return false;
        link.user = this;
        links.push_back(static_cast<introduced_link*>(&link));
        addresses.push_back(std::move(address));
        return true;
    }
    void received(packet_link&, const_bytes) noexcept override { ++packets; }
    void room(packet_link&) noexcept override { ++rooms; }
    void down(packet_link&, status why) noexcept override { downs.push_back(why.code); }
    void returned(packet&) noexcept override {}
    void abandoned(packet&) noexcept override {}
    void due() noexcept override {}

    std::vector<introduced_link*> links;
    std::vector<std::string> addresses;
    std::vector<errc> downs;
    int packets = 0;
    int rooms = 0;
    bool no_memory = false;  ///< For accepted().
};

inline std::vector<std::byte> introduction(const std::string& scheme) {
    std::vector<std::byte> bytes(10 + scheme.size());
    store_le(bytes.data(), std::uint64_t{77});
    store_le(bytes.data() + 8, static_cast<std::uint16_t>(scheme.size()));
    std::memcpy(bytes.data() + 10, scheme.data(), scheme.size());
    return bytes;
}

inline std::vector<std::byte> farewell(std::uint64_t packets) {
    std::vector<std::byte> bytes(8);
    store_le(bytes.data(), packets);
    return bytes;
}

class introduced_carrier_test : public testing::Test {
protected:
    introduced_carrier_test() { here_->start(events_); }

    /// A peer connects and sends this scheme; it is accepted if the scheme is ours.
    scripted_link& come(const std::string& scheme = "test+tcp") {
        scripted_link& from = inner_->peer();
        say(from, introduction_tag, introduction(scheme));
        return from;
    }
    void say(scripted_link& from, std::uint64_t tag, const std::vector<std::byte>& bytes) {
        EXPECT_NE(inner_->deliver_bytes(from, frame_kind::unexpected, tag, bytes),
                  delivery::malformed);
    }
    void look(int rounds = 64) {
        for (int i = 0; i < rounds; ++i)
            here_->progress(64);
    }

    int released_ = 0;
    noted_events events_;
    scripted_port* inner_ = new scripted_port;
    std::unique_ptr<scripted_carrier> here_ =
        std::make_unique<scripted_carrier>(std::unique_ptr<port>(inner_), released_);
};

}  // namespace amalgam::detail
