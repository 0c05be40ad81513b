// A peer that speaks hellos and frames over tcp (docs/wire/tcp.md, docs/wire/frames.md), first
// mostly right and then wrong, as caller and as callee, against a port in its own process, which a
// good client uses meanwhile.
#include <algorithm>
#include <array>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/random.hpp>

#include "conformance/child_process.hpp"
#include "fabric/frames/rma_frames.hpp"
#include "fabric/limits.hpp"
#include "fabric/transports/tcp/raw_peer.hpp"
#include "fabric/transports/tcp/test_port.hpp"
#include "seeded_runs.hpp"

namespace amalgam::adversary {
namespace {

using namespace detail;
using bytes_of = std::vector<std::byte>;

constexpr std::size_t shown_bytes = 100'000;
constexpr std::size_t guard_bytes = 4096;  // Before and after exposed memory.
constexpr std::byte guard{0x5a};
constexpr std::uint64_t max_queued = 4 << 20;
constexpr int max_staying = 20;

bool is_request(frame_kind kind) {
    return kind == frame_kind::put || kind == frame_kind::get || kind == frame_kind::put_notify ||
           kind == frame_kind::fetch_add || kind == frame_kind::compare_swap;
}

template <typename T>
void append(bytes_of& to, const T& more) {
    to.insert(to.end(), more.begin(), more.end());
}

// ---- the victim

/// A port that answers every message, exposes memory, calls peers on order, and reports on its line
/// how much it holds.
class victim {
public:
    explicit victim(conformance::channel& parent)
        : parent_(parent),
          here_("tcp://127.0.0.1:0", {.max_strangers = 10,
                                      .max_queued_bytes = 1 << 20,
                                      .max_queued_bytes_total = max_queued}),
          fixed_(shown_bytes + 2 * guard_bytes, guard),
          open_(fixed_) {
        here_.on_arrival = [this](message& what) {
            here_.send(what.from(), what.tag(), here_.arrived.back().text);
            here_.arrived.clear();
        };
        const auto show = [this](bytes_of& memory, access rights) {
            return here_.end
                ->open_region(mutable_bytes(memory).subspan(guard_bytes, shown_bytes), rights)
                .value();
        };
        regions_[0] = show(fixed_, access::read);
        regions_[1] = show(open_, access::read_write);
    }

    int serve() {
        parent_.say(here_.end->address());
        for (const region& each : regions_) {
            const auto wire = each.key().encode();
            parent_.say({reinterpret_cast<const char*>(wire.data()), wire.size()});
        }
        for (;;) {
            std::optional<std::string> asked;
            move_until({&here_}, [&] {
                if (!asked) asked = parent_.overhear();
                return asked.has_value();
            });
            if (*asked == "end") break;
            if (asked->starts_with("tcp://")) {
                call(*asked);
            } else {
                parent_.say(held());
            }
        }
        regions_ = {};
        here_.end.reset();  // Before the answers that liars have not read.
        return 0;
    }

private:
    struct wanted final : completion {
        explicit wanted(victim& from)
            : completion([](completion& c, status, std::size_t) noexcept {
                  auto& mine = static_cast<wanted&>(c);
                  --mine.whose.under_way_;
                  delete &mine;
              }),
              whose(from),
              memory(50'000),
              into(memory),
              from_bytes(memory) {}
        victim& whose;
        bytes_of memory;
        mutable_bytes into;
        const_bytes from_bytes;
        std::uint64_t old = 0;
    };

    void call(const std::string& liar) {
        const auto there = here_.end->lookup(liar);
        if (!there) return;
        const auto post = [&](auto how) {
            auto* const one = new wanted(*this);
            ++under_way_;
            if (how(*one) == posted::pending) return;
            --under_way_;
            delete one;
        };
        remote_key key;
        key.bytes = 50'000;
        key.rights = access::read_write;
        port& end = *here_.end;
        post([&](wanted& one) { return end.post_get(*there, {&one.into, 1}, key, 0, one); });
        post([&](wanted& one) { return end.post_put(*there, {&one.from_bytes, 1}, key, 0, one); });
        post([&](wanted& one) { return end.post_send(*there, 1, {&one.from_bytes, 1}, one); });
        post([&](wanted& one) {
            return end.post_put_notify(*there, {&one.from_bytes, 1}, key, 0, 7, one);
        });
        post([&](wanted& one) { return end.post_fetch_add(*there, key, 8, 1, &one.old, one); });
        post([&](wanted& one) {
            return end.post_compare_swap(*there, key, 8, 1, 2, &one.old, one);
        });
        post([&](wanted& one) { return end.post_receive(*there, 2, one.into, one); });
    }
    std::string held() {
        while (here_.operations.size() > 0 && here_.operations.front().over)
            here_.operations.pop_front();
        std::size_t descriptors = 0;
        for ([[maybe_unused]] const auto& one :
             std::filesystem::directory_iterator("/proc/self/fd"))
            ++descriptors;
        const auto is_whole = [](const bytes_of& memory, std::size_t from, std::size_t bytes) {
            return std::count(memory.begin() + from, memory.begin() + from + bytes, guard) ==
                   static_cast<std::ptrdiff_t>(bytes);
        };
        const bool whole = is_whole(fixed_, 0, fixed_.size()) && is_whole(open_, 0, guard_bytes) &&
                           is_whole(open_, guard_bytes + shown_bytes, guard_bytes);
        std::ostringstream all;
        all << here_.end->usage().queued_bytes << " " << descriptors << " " << under_way_ << " "
            << whole;
        return all.str();
    }

    conformance::channel& parent_;
    tcp_test_port here_;
    bytes_of fixed_, open_;
    std::array<region, 2> regions_;
    int under_way_ = 0;
};

// ---- the lying peer

using keys = std::array<remote_key, 2>;

/// One misbehaving connection. Never waits for the victim.
class liar {
public:
    liar(std::uint64_t seed, const keys& known, tcp_raw_peer at)
        : dice_(seed), keys_(known), at_(std::move(at)) {}
    liar(liar&&) = default;
    ~liar() {
        if (at_.fd() < 0 || !dice_.chance(0.4)) return;
        const linger at_once{1, 0};  // Its connection is reset.
        ::setsockopt(at_.fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    }

    void begin() {
        if (dice_.chance(0.05)) return;  // Stays silent.
        bytes_of first = greeting();
        if (dice_.chance(0.5)) append(first, frames());
        send(first);
    }
    void step() {
        switch (dice_.below(12)) {
            case 0:
                return trickle(frames());
            case 1: {  // Up to any byte, after which it leaves or stays silent.
                bytes_of some = frames();
                some.resize(dice_.below(some.size() + 1));
                return send(some);
            }
            case 2:
                if (dice_.chance(0.2)) ::shutdown(at_.fd(), dice_.chance(0.5) ? SHUT_WR : SHUT_RD);
                return;
            case 3:
                return send(greeting());
            case 4:
                return answer_all();
            case 5:
            case 6:
                return listen();
            default:
                return send(frames());
        }
    }

private:
    bytes_of noise(std::size_t bytes) {
        bytes_of made(bytes);
        for (std::byte& one : made)
            one = static_cast<std::byte>(dice_());
        return made;
    }
    /// As much as there is room for.
    void send(const bytes_of& what) {
        (void)::send(at_.fd(), what.data(), what.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    void trickle(const bytes_of& what) {
        for (std::size_t at = 0; at < what.size();) {
            const std::size_t some = std::min(what.size() - at, 1 + dice_.below(60));
            (void)::send(at_.fd(), what.data() + at, some, MSG_NOSIGNAL | MSG_DONTWAIT);
            at += some;
        }
    }
    void listen() {
        std::byte in[4096];
        for (ssize_t got; (got = ::recv(at_.fd(), in, sizeof in, MSG_DONTWAIT)) > 0;) {
            for (ssize_t i = 0; heard_.size() < 1 << 20 && i < got; ++i)
                heard_.push_back(in[i]);
        }
    }
    bytes_of greeting() {
        hello ours;
        // Many claim the same incarnation.
        ours.incarnation = dice_.chance(0.5) ? 4711 : dice_();
        ours.address = dice_.chance(0.5) ? "tcp://127.0.0.1:1" : std::string(dice_.below(300), 'a');
        if (dice_.chance(0.05)) ours.version = static_cast<std::uint16_t>(dice_());
        const encoded_hello encoded(ours);
        bytes_of made;
        append(made, encoded.bytes());
        if (dice_.chance(0.15))
            made[dice_.below(made.size())] ^= static_cast<std::byte>(1 + dice_.below(255));
        if (dice_.chance(0.05)) made.resize(dice_.below(made.size()));
        return made;
    }
    std::uint64_t number() {
        constexpr std::uint64_t edges[] = {
            0,          1,          shown_bytes, limits::rma_piece_bytes, 0x7fffffff, 0xffffffff,
            1ull << 32, 1ull << 62, 1ull << 63};
        const std::uint64_t edge = edges[dice_.below(std::size(edges))];
        const std::uint64_t around[] = {edge, edge - 1, edge + 1, ~edge, dice_()};
        return around[dice_.below(std::size(around))];
    }
    remote_key some_key() {
        remote_key key = keys_[dice_.below(keys_.size())];
        switch (dice_.below(10)) {
            case 0:
                key.secret ^= std::uint64_t{1} << dice_.below(64);
                break;
            case 1:
                key.region = number();
                break;
            case 2:
                key.incarnation ^= 1;
                break;
            case 3:
                key.bytes = number();
                break;
            case 4:
                key.rights = access{static_cast<std::uint8_t>(dice_())};
                break;
            default:
                break;
        }
        return key;
    }
    bytes_of frame() {
        constexpr frame_kind kinds[] = {
            frame_kind::unexpected, frame_kind::expected,     frame_kind::put,
            frame_kind::put,        frame_kind::get,          frame_kind::get,
            frame_kind::get_data,   frame_kind::rma_done,     frame_kind::put_notify,
            frame_kind::fetch_add,  frame_kind::compare_swap, frame_kind::fetched};
        frame_header header{.kind = kinds[dice_.below(std::size(kinds))], .tag = tag()};
        if (dice_.chance(0.02)) header.kind = frame_kind{static_cast<std::uint8_t>(dice_())};
        bytes_of payload = noise(dice_.below(dice_.chance(0.8) ? 200 : 60'000));
        if (header.kind == frame_kind::put || header.kind == frame_kind::get) {
            bytes_of raw(rma_request_bytes);
            const bool puts = header.kind == frame_kind::put;
            const std::uint64_t bytes = puts ? payload.size() : dice_.below(shown_bytes);
            write_request(raw.data(),
                          {some_key(), dice_.chance(0.6) ? dice_.below(shown_bytes) : number(),
                           dice_.chance(0.9) ? bytes : number()});
            if (puts) append(raw, payload);
            payload = std::move(raw);
            if (dice_.chance(0.03)) payload.resize(dice_.below(payload.size() + 1));
        }
        if (is_request(header.kind) && header.kind >= frame_kind::put_notify) {
            bytes_of raw(header.kind == frame_kind::fetch_add ? rma_fetch_add_bytes
                                                              : rma_notify_bytes);
            const bool puts = header.kind == frame_kind::put_notify;
            const std::uint64_t bytes = puts ? payload.size() + dice_.below(3) : 8;
            write_request(raw.data(),
                          {some_key(), dice_.chance(0.6) ? dice_.below(shown_bytes) : number(),
                           dice_.chance(0.9) ? bytes : number()});
            if (puts) append(raw, payload);
            payload = std::move(raw);
            if (dice_.chance(0.03)) payload.resize(dice_.below(payload.size() + 1));
        }
        if (header.kind == frame_kind::fetched && dice_.chance(0.9))
            payload.resize(rma_fetched_bytes);
        if (header.kind == frame_kind::rma_done && dice_.chance(0.9)) {
            payload.resize(rma_status_bytes);
            write_status(payload.data(), {errc{static_cast<std::uint8_t>(dice_.below(60))}});
        }
        header.bytes = static_cast<std::uint32_t>(payload.size());
        if (dice_.chance(0.03)) header.bytes = static_cast<std::uint32_t>(number());
        if (dice_.chance(0.03)) header.flags = static_cast<std::uint8_t>(dice_());
        bytes_of made;
        append(made, to_wire(header));
        append(made, payload);
        return made;
    }
    bytes_of frames() {
        bytes_of all;
        for (std::uint64_t i = 1 + dice_.below(6); i > 0; --i)
            append(all, frame());
        return all;
    }
    std::uint64_t tag() {
        return !asked_.empty() && dice_.chance(0.7) ? asked_[dice_.below(asked_.size())]
                                                    : dice_.below(4);
    }
    /// Answers the victim's requests, right or almost right.
    void answer_all() {
        listen();
        while (heard_.size() - read_ >= sizeof(frame_header)) {
            const frame_header header = from_wire(heard_.data() + read_);
            if (heard_.size() - read_ - sizeof header < header.bytes) return;
            const std::byte* const payload = heard_.data() + read_ + sizeof header;
            read_ += sizeof header + header.bytes;
            if (!is_request(header.kind)) continue;
            if (header.bytes < rma_request_bytes) continue;
            asked_.push_back(header.tag);
            answer(header, read_request(payload));
        }
    }
    void answer(const frame_header& asked, const rma_request& request) {
        bytes_of made, payload(8);
        frame_header header{.kind = frame_kind::rma_done, .tag = asked.tag};
        if (asked.kind == frame_kind::get) {
            header.kind = frame_kind::get_data;
            store_le(payload.data(), dice_.chance(0.9) ? request.offset : number());
            payload.resize(8 + (dice_.chance(0.9) ? request.bytes : dice_.below(100'000)));
        } else if ((asked.kind == frame_kind::fetch_add ||
                    asked.kind == frame_kind::compare_swap) &&
                   dice_.chance(0.8)) {
            header.kind = frame_kind::fetched;
            payload.resize(dice_.chance(0.9) ? rma_fetched_bytes : dice_.below(20));
        } else {
            write_status(payload.data(), {dice_.chance(0.5) ? errc::ok : errc::denied});
        }
        header.bytes = static_cast<std::uint32_t>(payload.size());
        append(made, to_wire(header));
        append(made, payload);
        for (std::uint64_t i = dice_.below(3); i > 0; --i)
            send(made);
    }

    seeded_random dice_;
    keys keys_;
    tcp_raw_peer at_;
    bytes_of heard_;
    std::size_t read_ = 0;
    std::vector<std::uint64_t> asked_;
};

// ---- the judge

struct held {
    std::uint64_t queued_bytes = 0, descriptors = 0;
    int under_way = 0;
    bool memory_is_whole = false;
};

class tcp_adversary : public testing::Test {
protected:
    tcp_adversary()
        : process_([](conformance::channel& parent) { return victim(parent).serve(); }),
          address_(process_.line().hear()),
          good_("tcp://"),
          there_(good_.look_up(address_)) {
        for (remote_key& each : keys_) {
            const std::string wire = process_.line().hear();
            each = remote_key::decode(
                as_bytes_of(std::string_view(wire)).first<remote_key::wire_bytes>());
        }
    }

    /// The good client reads read-only memory.
    bool memory_is_read() {
        struct reading final : completion {
            reading()
                : completion([](completion& c, status what, std::size_t) noexcept {
                      auto& mine = static_cast<reading&>(c);
                      mine.over = true;
                      mine.how = what;
                  }) {}
            bool over = false;
            status how;
        } one;
        bytes_of memory(shown_bytes);
        const mutable_bytes into(memory);
        if (good_.end->post_get(there_, {&into, 1}, keys_[0], 0, one) != posted::pending)
            return false;
        move_until({&good_}, [&] { return one.over; });
        return one.how.ok() && memory == bytes_of(shown_bytes, guard);
    }
    held ask() {
        process_.line().say("what do you hold?");
        held all;
        std::istringstream(process_.line().hear()) >> all.queued_bytes >> all.descriptors >>
            all.under_way >> all.memory_is_whole;
        return all;
    }

    conformance::child_process process_;
    std::string address_;
    tcp_test_port good_;
    peer_id there_;
    keys keys_;
};

TEST_F(tcp_adversary, a_peer_that_lies_harms_nobody_else_and_leaves_nothing_behind) {
    ASSERT_TRUE(echoes(good_, there_, 1, 10));
    const held before = ask();
    std::deque<liar> staying;
    for (const std::uint64_t seed : seeded_runs(200)) {
        seeded_random dice(seed);
        const bool called = dice.chance(0.3);
        raw_listener listener;
        if (called) process_.line().say(listener.address());
        liar one(dice(), keys_, called ? listener.accept() : tcp_raw_peer(address_));
        one.begin();
        for (std::uint64_t i = dice.below(30); i > 0; --i)
            one.step();
        ASSERT_TRUE(echoes(good_, there_, seed, 1 + dice.below(20'000))) << "seed " << seed;
        for (std::uint64_t i = dice.below(10); i > 0; --i)
            one.step();
        ASSERT_TRUE(memory_is_read()) << "seed " << seed;
        if (dice.chance(0.3)) staying.push_back(std::move(one));
        if (staying.size() > max_staying) staying.pop_front();
        if (seed % 10 == 0) {
            tcp_test_port newcomer("tcp://");
            ASSERT_TRUE(echoes(newcomer, newcomer.look_up(address_), seed, 100));
            const held now = ask();
            ASSERT_TRUE(now.memory_is_whole);
            ASSERT_LE(now.queued_bytes, max_queued + (max_staying + 1) * (std::uint64_t{1} << 20));
            ASSERT_LE(now.descriptors, before.descriptors + 2 * max_staying + 4);
        }
    }
    staying.clear();
    // Its connections are gone by now, or go once the port has noticed.
    held after = ask();
    while (after.queued_bytes > before.queued_bytes || after.descriptors > before.descriptors ||
           after.under_way > 0) {
        ASSERT_TRUE(echoes(good_, there_, 2, 10));
        after = ask();
    }
    EXPECT_TRUE(after.memory_is_whole);
    process_.line().say("end");
    EXPECT_EQ(process_.join(), 0);
}

}  // namespace
}  // namespace amalgam::adversary
