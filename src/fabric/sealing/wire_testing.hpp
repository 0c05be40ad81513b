#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <amalgam/core/unique_fd.hpp>

#include "fabric/sealing/carrier.hpp"
#include "memory/memory.hpp"

namespace amalgam::detail {

using packet_bytes_of = std::vector<std::byte>;

/// One end of a wire in the hands of the test, which sees every packet that leaves, and decides
/// what arrives.
class wired_carrier final : public introducing_carrier {
public:
    struct link final : packet_link {
        posted send(packet& one) noexcept override {
            const memory::spared ours;
            tried.emplace_back(one.data, one.data + one.bytes);
            if (answer == posted::full) return answer;
            left.push_back(tried.back());
            if (answer == posted::pending) held.push_back(&one);
            return answer;
        }
        void close() noexcept override { ++closes; }

        posted answer = posted::done;
        std::deque<packet_bytes_of> left;    ///< Sent, not delivered yet.
        std::vector<packet_bytes_of> tried;  ///< Every packet that send() was given.
        std::vector<packet*> held;
        int closes = 0;
        std::unique_ptr<link_secrets> secrets;
    };

    void start(packet_events& to) noexcept override { events = &to; }
    std::string address() const override { return "wire://here"; }
    std::string explain() const override { return "a test asked for it"; }
    result<std::string> canonical(std::string_view address) const override {
        return std::string(address);
    }
    result<packet_link*> connect(std::string_view address) override {
        dialed = address;
        links.push_back(std::make_unique<link>());
        return static_cast<packet_link*>(links.back().get());
    }
    void release(packet_link&) noexcept override { ++released; }
    std::size_t progress(std::size_t) noexcept override { return ran; }
    int wait_handle() const noexcept override { return handle_.get(); }
    bool arm() noexcept override { return true; }
    std::unique_ptr<link_secrets> take_secrets(packet_link& one) noexcept override {
        return std::move(static_cast<link&>(one).secrets);
    }

    packet_events* events = nullptr;
    std::vector<std::unique_ptr<link>> links;
    int released = 0;
    std::size_t ran = 0;  ///< In each call of progress().
    std::string dialed;   ///< The latest address that was connected to.

private:
    unique_fd handle_{::eventfd(0, EFD_CLOEXEC)};
};

/// What a port would be told.
struct noted_upcalls final : packet_events {
    bool accepted(packet_link& link, std::string address) noexcept override {
        const memory::spared ours;
        links.push_back(&link);
        addresses.push_back(std::move(address));
        return !no_memory;
    }
    void received(packet_link&, const_bytes bytes) noexcept override {
        const memory::spared ours;
        packets.emplace_back(bytes.begin(), bytes.end());
    }
    void room(packet_link&) noexcept override { ++rooms; }
    void down(packet_link&, status why) noexcept override {
        const memory::spared ours;
        downs.push_back(why.code);
    }
    void returned(packet&) noexcept override { ADD_FAILURE() << "a packet that was not lent"; }
    void abandoned(packet&) noexcept override { ADD_FAILURE() << "a packet that was not lent"; }
    void due() noexcept override {}

    std::vector<packet_link*> links;
    std::vector<std::string> addresses;
    std::vector<packet_bytes_of> packets;
    std::vector<errc> downs;
    int rooms = 0;
    bool no_memory = false;
};

inline std::unique_ptr<link_secrets> secrets_of_test(unsigned sending, unsigned receiving,
                                                     std::uint8_t their_ciphers) {
    auto made = std::make_unique<link_secrets>();
    made->sending.fill(static_cast<std::byte>(sending));
    made->receiving.fill(static_cast<std::byte>(receiving));
    made->their_ciphers = their_ciphers;
    made->who = {.kind = identity_kind::certificate, .name = "node7"};
    return made;
}

inline packet_bytes_of bytes_of(std::string_view text) {
    const const_bytes bytes = as_bytes_of(text);
    return {bytes.begin(), bytes.end()};
}

/// A sealed carrier over one end of a wire, and its one connection.
class sealed_end {
public:
    static constexpr std::size_t packet_bytes = 4096;

    /// The other end has the two keys the other way round.
    sealed_end(unsigned sending, unsigned receiving, std::uint8_t their_ciphers = ciphers_here())
        : wire_(new wired_carrier),
          here_(std::make_unique<sealed_carrier>(std::unique_ptr<introducing_carrier>(wire_),
                                                 packet_bytes)) {
        here_->start(events);
        link = here_->connect("wire://there").value();
        below = wire_->links.back().get();
        below->secrets = secrets_of_test(sending, receiving, their_ciphers);
    }
    /// The ends have been introduced.
    void open() { wire_->events->room(*below); }
    posted send(std::string_view text) { return send(bytes_of(text)); }
    posted send(packet_bytes_of bytes) {
        packet one;
        one.data = bytes.data();
        one.bytes = static_cast<std::uint32_t>(bytes.size());
        return link->send(one);
    }
    void say(std::string_view text) { EXPECT_EQ(send(text), posted::done); }
    /// The next packet on the wire.
    packet_bytes_of take() {
        packet_bytes_of next = std::move(below->left.front());
        below->left.pop_front();
        return next;
    }
    void receive(const packet_bytes_of& bytes) { wire_->events->received(*below, bytes); }
    wired_carrier& wire() noexcept { return *wire_; }
    sealed_carrier& carrier() noexcept { return *here_; }
    void end() { here_.reset(); }

    noted_upcalls events;
    packet_link* link = nullptr;
    wired_carrier::link* below = nullptr;

private:
    wired_carrier* wire_;
    std::unique_ptr<sealed_carrier> here_;
};

}  // namespace amalgam::detail
