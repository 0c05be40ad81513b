#include <algorithm>
#include <array>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <amalgam/core/status.hpp>
#include <amalgam/fabric/transport.hpp>

#include "perf/pair.hpp"
#include "perf/tests.hpp"

namespace amalgam::perf {
namespace {

/// Fruitless polls between two checks outside the port.
constexpr unsigned look_around_every = 1u << 14;
constexpr double patience_s = 10;

/// One operation at a time, and how it ended.
class one_operation final : public completion {
public:
    one_operation() noexcept : completion(&ended) {}
    bool busy = false;
    status what;

private:
    static void ended(completion& self, status what, std::size_t) noexcept {
        auto& op = static_cast<one_operation&>(self);
        op.busy = false;
        op.what = what;
    }
};

void fail_unless_ok(status what, std::string_view doing) {
    if (!what.ok()) throw error(what, fmt::format("{} failed: {}", doing, to_string(what)));
}

/// Retries `post(op)` until accepted.
template <typename Post>
void post_one(port& at, one_operation& op, Post&& post) {
    for (;;) {
        op.busy = true;
        switch (post(op)) {
            case posted::done:
                op.busy = false;
                return;
            case posted::pending:
                return;
            case posted::full:
                op.busy = false;
                at.progress();
        }
    }
}

/// Polls until `done()`; throws after `patience_s`.
template <typename Done>
void poll_until(port& at, Done&& done, std::string_view waiting_for) {
    unsigned idle = 0;
    auto since = clock_type::time_point{};
    while (!done()) {
        if (at.progress() != 0) {
            idle = 0;
        } else if (++idle % look_around_every == 0) {
            if (idle == look_around_every) since = clock_type::now();
            if (seconds_since(since) > patience_s)
                throw error(errc::timed_out, fmt::format("timed out after {} s waiting for {}",
                                                         patience_s, waiting_for));
        }
    }
}

/// Echoes every message; one at a time is in flight.
class echo final : public message_sink {
public:
    explicit echo(port& at) : at_(at) {}

    void on_message(message& m) noexcept override {
        to_ = m.from();
        tag_ = m.tag();
        // The peer may have the last answer before our send completes.
        waits_ = op_.busy;
        if (waits_) {
            next_ = m.take();
            return;
        }
        // The answer's bytes are borrowed until completion, so if not copied they are kept.
        if (m.bytes().size() > at_.can().inline_bytes) {
            kept_ = m.take();
            bytes_ = kept_.bytes();
        } else {
            bytes_ = m.bytes();
        }
        answer();
    }
    void answer_again() noexcept {
        if (refused_) {
            answer();
        } else if (waits_ && !op_.busy) {
            waits_ = false;
            kept_ = std::move(next_);
            bytes_ = kept_.bytes();
            answer();
        }
    }

private:
    void answer() noexcept {
        op_.busy = true;
        const posted how = at_.post_send(to_, tag_, gather(&bytes_, 1), op_);
        if (how != posted::pending) op_.busy = false;
        refused_ = how == posted::full;
        if (refused_ && kept_.empty()) {
            kept_ = buffer::of(bytes_.size());
            std::copy(bytes_.begin(), bytes_.end(), kept_.data());
            bytes_ = kept_.bytes();
        }
    }

    port& at_;
    peer_id to_;
    std::uint64_t tag_ = 0;
    buffer kept_, next_;
    const_bytes bytes_;
    bool refused_ = false;
    bool waits_ = false;
    one_operation op_;
};

class arrivals final : public message_sink {
public:
    void on_message(message& m) noexcept override {
        ++count;
        bytes += m.bytes().size();
    }
    void on_peer_down(peer_id, status) noexcept override { down = true; }
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
    bool down = false;
};

/// Polls, and calls `after_progress`, until the measuring process closes the channel.
template <typename After>
void serve(port& at, channel& talk, After&& after_progress) {
    for (unsigned idle = 0;;) {
        if (at.progress() != 0) {
            idle = 0;
            after_progress();
        } else if (++idle % look_around_every == 0 && talk.closed()) {
            return;
        }
    }
}

std::unique_ptr<port> open_port(const std::string& uri) {
    auto opened = transport_registry::installed().open(uri);
    if (!opened) throw error(opened.code(), opened.sentence());
    if (!opened->get()->can().between_processes)
        throw error(errc::unsupported,
                    fmt::format("{} stays within one process, but a measurement needs two; "
                                "example: shm://",
                                uri));
    return std::move(*opened);
}

/// Memory that transfers use.
enum class memory_kind {
    own,   ///< The program's own, from the heap.
    block  ///< From port::allocate().
};

/// Memory of one kind, filled.
class memory {
public:
    memory(port& at, memory_kind kind, std::size_t bytes) {
        if (kind == memory_kind::own) {
            own_.resize(bytes);
            bytes_ = own_;
        } else {
            block_ = at.allocate(bytes).value();
            bytes_ = block_.bytes();
        }
        std::fill(bytes_.begin(), bytes_.end(), std::byte{0x5a});
    }
    mutable_bytes bytes() const noexcept { return bytes_; }

private:
    std::vector<std::byte> own_;
    shared_block block_;
    mutable_bytes bytes_;
};

/// One transfer in flight, with everything the port borrows.
struct transfer {
    transfer(port& at, memory_kind kind, std::size_t bytes)
        : held(at, kind, bytes), into(held.bytes()), from(held.bytes()) {}
    memory held;
    mutable_bytes into;
    const_bytes from;
    one_operation op;
};

/// Moves `size_bytes` at a time in one direction, `depth` transfers in flight.
template <typename Post>
measurement bandwidth(const request& asked, std::string_view name, memory_kind kind, Post&& post) {
    forked_peer peer([&](channel& talk) {
        auto at = open_port(asked.uri);
        const memory target(*at, kind, asked.size_bytes);
        auto shared = at->open_region(target.bytes(), access::read_write).value();
        const auto key = shared.key().encode();
        talk.write_line(at->address());
        std::string hex;
        for (std::byte b : key)
            hex += fmt::format("{:02x}", static_cast<unsigned>(b));
        talk.write_line(hex);
        serve(*at, talk, [] {});
    });
    const std::string address = peer.talk().read_line();
    const std::string hex = peer.talk().read_line();
    std::array<std::byte, remote_key::wire_bytes> wire{};
    for (std::size_t i = 0; i < wire.size(); ++i)
        wire[i] = static_cast<std::byte>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
    const auto key = remote_key::decode(wire);

    auto at = open_port(asked.uri);
    std::vector<std::unique_ptr<transfer>> transfers;
    for (std::size_t i = 0; i < asked.depth; ++i)
        transfers.push_back(std::make_unique<transfer>(*at, kind, asked.size_bytes));
    // Last: to fill that memory may take longer than a connection waits for its peer.
    const peer_id target = at->lookup(address).value();
    const auto finish = [&](transfer& one) {
        poll_until(
            *at, [&] { return !one.op.busy; }, name);
        fail_unless_ok(one.op.what, name);
    };

    std::size_t next = 0;
    measurement m;
    m.ops_per_s = measure_rate(asked.seconds * 0.2, asked.seconds * 0.8, asked.depth, [&] {
        transfer& one = *transfers[next];
        finish(one);
        post_one(*at, one.op, [&](completion& c) { return post(*at, target, one, key, c); });
        next = (next + 1) % transfers.size();
    });
    for (auto& one : transfers)
        finish(*one);
    m.bytes_per_s = m.ops_per_s * static_cast<double>(asked.size_bytes);
    return m;
}

measurement puts(const request& asked, memory_kind kind) {
    return bandwidth(
        asked, "a put", kind,
        [](port& at, peer_id target, transfer& one, const remote_key& key, completion& c) {
            return at.post_put(target, gather(&one.from, 1), key, 0, c);
        });
}

measurement gets(const request& asked, memory_kind kind) {
    return bandwidth(
        asked, "a get", kind,
        [](port& at, peer_id target, transfer& one, const remote_key& key, completion& c) {
            return at.post_get(target, scatter(&one.into, 1), key, 0, c);
        });
}

}  // namespace

measurement message_latency(const request& asked) {
    forked_peer peer([&](channel& talk) {
        auto at = open_port(asked.uri);
        echo sink(*at);
        at->set_sink(&sink);
        talk.write_line(at->address());
        serve(*at, talk, [&] { sink.answer_again(); });
    });
    const std::string address = peer.talk().read_line();
    auto at = open_port(asked.uri);
    arrivals sink;
    at->set_sink(&sink);
    const peer_id target = at->lookup(address).value();
    const std::vector<std::byte> memory(asked.size_bytes, std::byte{0x5a});
    const const_bytes bytes(memory);
    one_operation op;
    std::uint64_t expected = 0;

    measurement m = measure_round_trips(asked.seconds, [&] {
        post_one(*at, op, [&](completion& c) {
            return at->post_send(target, expected, gather(&bytes, 1), c);
        });
        ++expected;
        poll_until(
            *at, [&] { return (sink.count == expected && !op.busy) || sink.down; },
            "the reply to a message");
        if (sink.down)
            throw error(errc::disconnected, "the peer disconnected during the measurement");
    });
    m.bytes_per_s = 2 * m.ops_per_s * static_cast<double>(asked.size_bytes);
    return m;
}

measurement put_bandwidth(const request& asked) {
    return puts(asked, memory_kind::own);
}
measurement get_bandwidth(const request& asked) {
    return gets(asked, memory_kind::own);
}
measurement put_block_bandwidth(const request& asked) {
    return puts(asked, memory_kind::block);
}
measurement get_block_bandwidth(const request& asked) {
    return gets(asked, memory_kind::block);
}

}  // namespace amalgam::perf
