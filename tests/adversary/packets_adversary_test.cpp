// A peer that speaks introductions (docs/wire/packets.md) and packets, first mostly right and then
// wrong, against a port in its own process, which a good client uses meanwhile.
#include <cstring>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/random.hpp>

#include "adversary/datagram_carrier.hpp"
#include "conformance/child_process.hpp"
#include "fabric/frames/rma_frames.hpp"
#include "fabric/packets/header.hpp"
#include "fabric/transports/tcp/raw_peer.hpp"
#include "fabric/transports/tcp/test_port.hpp"
#include "seeded_runs.hpp"

namespace amalgam::adversary {
namespace {

using namespace detail;
using bytes_of = std::vector<std::byte>;

constexpr std::uint64_t greeting_tag = 0x316f7274'6c616d41u;
constexpr std::uint64_t farewell_tag = greeting_tag + 1;

bool is_request(frame_kind kind) {
    return kind == frame_kind::put || kind == frame_kind::get || kind == frame_kind::put_notify ||
           kind == frame_kind::fetch_add || kind == frame_kind::compare_swap;
}

void append(bytes_of& to, const_bytes more) {
    to.insert(to.end(), more.begin(), more.end());
}

// ---- the victim

/// A port that answers every message, and reports on its line how much it holds.
int serve(conformance::channel& parent, bool caller_first) {
    tcp_test_port here(open_datagram_port(caller_first));
    here.on_arrival = [&](message& what) {
        here.send(what.from(), what.tag(), here.arrived.back().text);
        here.arrived.clear();
    };
    std::vector<std::byte> memory(100'000);
    std::optional<region> shown = here.end->open_region(memory, access::read_write).value();
    parent.say(here.end->address());
    for (;;) {
        std::optional<std::string> asked;
        move_until({&here}, [&] {
            if (!asked) asked = parent.overhear();
            return asked.has_value();
        });
        if (*asked == "end") {
            shown.reset();
            here.end.reset();  // Before the answers that liars have not read.
            return 0;
        }
        std::size_t descriptors = 0;
        for ([[maybe_unused]] const auto& one :
             std::filesystem::directory_iterator("/proc/self/fd"))
            ++descriptors;
        while (here.operations.size() > 0 && here.operations.front().over)
            here.operations.pop_front();
        parent.say(std::to_string(here.end->usage().queued_bytes) + " " +
                   std::to_string(descriptors));
    }
}

// ---- the lying peer

class liar {
public:
    liar(std::uint64_t seed, const std::string& address)
        : dice_(seed), at_("tcp" + address.substr(address.find("://"))), own_id_(dice_() | 1) {}
    ~liar() {
        if (!dice_.chance(0.3)) return;
        const linger at_once{1, 0};  // Its connection is reset.
        ::setsockopt(at_.fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    }

    /// True: the port has greeted, so packets may be sent.
    bool meet() {
        if (dice_.chance(0.05)) return say_noise();
        if (!at_.shake_hands({.incarnation = dice_() | 1})) return false;
        if (dice_.chance(0.05)) return false;  // And stays silent.
        bytes_of out(10);
        store_le(out.data(), own_id_);
        std::string scheme = datagram_carrier::scheme;
        std::size_t told = scheme.size();
        bytes_of name = socket_.name();
        bool right = false;
        switch (dice_.below(12)) {
            case 0:
                scheme = noise_text(dice_.below(80));
                told = scheme.size();
                break;
            case 1:
                told = dice_.below(70'000);
                break;
            case 2:
                name = noise(dice_.below(300));
                break;
            case 3:
                name.clear();
                break;
            case 4:
                name = noise(1 + dice_.below(30'000));
                break;
            default:
                right = true;
        }
        store_le(out.data() + 8, static_cast<std::uint16_t>(told));
        append(out, as_bytes_of(scheme));
        append(out, name);
        if (dice_.chance(0.03)) out.resize(dice_.below(out.size())), right = false;
        introduce(greeting_tag, out);
        if (!right) {
            at_.wait_until_delivered();
            return false;
        }
        return hear_greeting();
    }

    void step() {
        switch (dice_.below(14)) {
            case 0:
                return send(packet_kind::hello, 0, hello());
            case 1: {
                bytes_of wrong = hello();
                wrong[dice_.below(wrong.size())] ^= static_cast<std::byte>(1 + dice_.below(255));
                return send(packet_kind::hello, 0, wrong);
            }
            case 2:
                return send(packet_kind::credit, credit(), noise(dice_.chance(0.5) ? 0 : 9));
            case 3:
                return send(packet_kind{static_cast<std::uint8_t>(dice_())}, credit(), noise(20));
            case 4: {  // Less than a header, or too much.
                const bytes_of raw = noise(dice_.below(2) == 0 ? dice_.below(8) : 2000);
                (void)socket_.send(their_name_, their_id_, raw);
                return;
            }
            case 5:  // To another peer, or to none.
                (void)socket_.send(their_name_, dice_(), noise(64));
                return;
            case 6:
                return introduce(greeting_tag, noise(dice_.below(40)));
            case 7: {
                bytes_of many(8);
                store_le(many.data(), dice_.chance(0.5) ? dice_() : dice_.below(10));
                return introduce(farewell_tag, many);
            }
            case 8:
                return introduce(dice_.chance(0.5) ? farewell_tag : dice_(),
                                 noise(dice_.below(30)));
            case 9: {
                frame_header any{.kind = frame_kind{static_cast<std::uint8_t>(1 + dice_.below(8))},
                                 .tag = dice_()};
                at_.send_frame(any, noise(dice_.below(100)));
                return;
            }
            default:
                return send_frames();
        }
    }

    /// Reads what the port has sent, so that its packets find room.
    void listen() {
        std::byte in[datagram_packet_bytes + 8];
        while (::recv(socket_.fd(), in, sizeof in, MSG_DONTWAIT) >= 0)
            ++heard_;
    }
    void hello_rightly() { send(packet_kind::hello, 0, hello()); }

private:
    bytes_of noise(std::size_t bytes) {
        bytes_of made(bytes);
        for (std::byte& one : made)
            one = static_cast<std::byte>(dice_());
        return made;
    }
    std::string noise_text(std::size_t bytes) {
        const bytes_of made = noise(bytes);
        return {reinterpret_cast<const char*>(made.data()), made.size()};
    }
    bool say_noise() {
        at_.send(noise(16 + dice_.below(2000)));
        at_.wait_until_delivered();
        return false;
    }
    void introduce(std::uint64_t tag, const bytes_of& bytes) {
        at_.send_frame({.kind = frame_kind::unexpected, .tag = tag}, bytes);
    }
    bool read(std::byte* to, std::size_t bytes) {
        while (bytes > 0) {
            const ssize_t got = ::recv(at_.fd(), to, bytes, 0);
            if (got <= 0) return false;
            to += got;
            bytes -= static_cast<std::size_t>(got);
        }
        return true;
    }
    bool hear_greeting() {
        wire_header wire;
        if (!read(wire.data(), wire.size())) return false;
        bytes_of bytes(from_wire(wire.data()).bytes);
        const std::size_t head = 10 + std::strlen(datagram_carrier::scheme);
        if (!read(bytes.data(), bytes.size()) || bytes.size() < head) return false;
        their_id_ = load_le<std::uint64_t>(bytes.data());
        their_name_.assign(bytes.begin() + static_cast<std::ptrdiff_t>(head), bytes.end());
        return true;
    }
    bytes_of hello() {
        packet_hello one;
        one.packet_bytes = datagram_packet_bytes;
        one.incarnation = dice_() | 1;
        bytes_of made(packet_hello::wire_bytes);
        one.encode(made.data());
        return made;
    }
    std::uint16_t credit() {
        return static_cast<std::uint16_t>(dice_.chance(0.9) ? 0 : dice_.below(100));
    }
    void send(packet_kind kind, std::uint16_t credit, const bytes_of& rest) {
        bytes_of made(packet_header::wire_bytes);
        packet_header{kind, credit}.encode(made.data());
        append(made, rest);
        (void)socket_.send(their_name_, their_id_, made);
    }
    bytes_of frame() {
        constexpr frame_kind kinds[] = {frame_kind::unexpected,   frame_kind::expected,
                                        frame_kind::put,          frame_kind::get,
                                        frame_kind::get_data,     frame_kind::rma_done,
                                        frame_kind::put_notify,   frame_kind::fetch_add,
                                        frame_kind::compare_swap, frame_kind::fetched};
        const std::size_t which = dice_.below(std::size(kinds) + 1);
        frame_header header{.kind = which == std::size(kinds)
                                        ? frame_kind{static_cast<std::uint8_t>(dice_())}
                                        : kinds[which],
                            .tag = dice_.below(4)};
        bytes_of payload = noise(dice_.below(dice_.chance(0.8) ? 200 : 6000));
        if (is_request(header.kind) && dice_.chance(0.8)) {
            bytes_of raw(rma_request_bytes);
            remote_key key;
            key.secret = dice_();
            key.region = dice_.below(3);
            key.incarnation = dice_();
            key.bytes = dice_.chance(0.5) ? 100'000 : dice_();
            write_request(raw.data(), {key, dice_.below(200'000),
                                       header.kind == frame_kind::put ? payload.size() : dice_()});
            payload.insert(payload.begin(), raw.begin(), raw.end());
            if (header.kind == frame_kind::get) payload.resize(rma_request_bytes);
            if (header.kind == frame_kind::fetch_add) payload.resize(rma_fetch_add_bytes);
            if (header.kind == frame_kind::compare_swap) payload.resize(rma_compare_swap_bytes);
        }
        header.bytes = static_cast<std::uint32_t>(payload.size());
        if (dice_.chance(0.05)) header.bytes = static_cast<std::uint32_t>(dice_());
        if (dice_.chance(0.05)) header.bytes = std::uint32_t{1} << 30;
        if (dice_.chance(0.03)) header.flags = static_cast<std::uint8_t>(dice_());
        const wire_header wire = to_wire(header);
        bytes_of made;
        append(made, const_bytes(wire));
        append(made, payload);
        return made;
    }
    /// Some frames, split into packets anywhere.
    void send_frames() {
        bytes_of all;
        for (std::uint64_t i = 1 + dice_.below(5); i > 0; --i)
            append(all, frame());
        constexpr std::size_t most = datagram_packet_bytes - packet_header::wire_bytes;
        for (std::size_t at = 0; at < all.size();) {
            const std::size_t some = std::min(all.size() - at, 1 + dice_.below(most));
            const auto from = all.begin() + static_cast<std::ptrdiff_t>(at);
            send(packet_kind::frames, credit(),
                 bytes_of(from, from + static_cast<std::ptrdiff_t>(some)));
            at += some;
        }
    }

    seeded_random dice_;
    tcp_raw_peer at_;
    datagram_socket socket_;
    std::uint64_t own_id_, their_id_ = 0;
    bytes_of their_name_;
    std::size_t heard_ = 0;
};

// ---- the judge

struct held {
    std::uint64_t queued_bytes = 0, descriptors = 0;
};

class packets_adversary : public testing::TestWithParam<bool> {
protected:
    packets_adversary()
        : victim_(
              [first = GetParam()](conformance::channel& parent) { return serve(parent, first); }),
          address_(victim_.line().hear()),
          good_(open_datagram_port(GetParam())),
          there_(good_.look_up(address_)) {}

    held ask() {
        victim_.line().say("what do you hold?");
        held all;
        std::istringstream(victim_.line().hear()) >> all.queued_bytes >> all.descriptors;
        return all;
    }

    conformance::child_process victim_;
    std::string address_;
    tcp_test_port good_;
    peer_id there_;
};

INSTANTIATE_TEST_SUITE_P(both_open_at_once, packets_adversary, testing::Values(false));
INSTANTIATE_TEST_SUITE_P(caller_goes_first, packets_adversary, testing::Values(true));

TEST_P(packets_adversary, a_peer_that_lies_harms_nobody_else_and_leaves_nothing_behind) {
    ASSERT_TRUE(echoes(good_, there_, 1, 10));
    const held before = ask();
    std::deque<std::unique_ptr<liar>> staying;
    for (const std::uint64_t seed : seeded_runs(150)) {
        seeded_random dice(seed);
        auto one = std::make_unique<liar>(dice(), address_);
        if (one->meet()) {
            if (dice.chance(0.9)) one->hello_rightly();
            for (std::uint64_t i = dice.below(12); i > 0; --i) {
                one->step();
                if (dice.chance(0.7)) one->listen();
            }
        }
        ASSERT_TRUE(echoes(good_, there_, seed, 1 + dice.below(20'000))) << "seed " << seed;
        if (dice.chance(0.3)) staying.push_back(std::move(one));
        if (staying.size() > 20) staying.pop_front();
        if (seed % 10 == 0) {
            tcp_test_port newcomer(open_datagram_port(GetParam()));
            ASSERT_TRUE(echoes(newcomer, newcomer.look_up(address_), seed, 100));
        }
    }
    staying.clear();
    // Its connections are gone by now, or go once the port has noticed.
    held after = ask();
    while (after.queued_bytes > before.queued_bytes || after.descriptors > before.descriptors) {
        ASSERT_TRUE(echoes(good_, there_, 2, 10));
        after = ask();
    }
    victim_.line().say("end");
    EXPECT_EQ(victim_.join(), 0);
}

}  // namespace
}  // namespace amalgam::adversary
