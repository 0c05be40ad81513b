#include "conformance/served.hpp"

#include <algorithm>
#include <charconv>
#include <deque>
#include <span>
#include <utility>

namespace amalgam::conformance {

std::string served::to_text() const {
    constexpr char digits[] = "0123456789abcdef";
    std::string text;
    for (const remote_key& one : {key, block_key}) {
        for (std::byte each : one.encode()) {
            text += digits[std::to_integer<int>(each) >> 4];
            text += digits[std::to_integer<int>(each) & 15];
        }
    }
    return text + address;
}

served served::from_text(const std::string& text) {
    std::array<std::byte, 2 * remote_key::wire_bytes> wire{};
    for (std::size_t i = 0; i < wire.size(); ++i) {
        unsigned value = 0;
        std::from_chars(text.data() + 2 * i, text.data() + 2 * i + 2, value, 16);
        wire[i] = static_cast<std::byte>(value);
    }
    const std::span<const std::byte, 2 * remote_key::wire_bytes> both(wire);
    return {text.substr(2 * wire.size()), remote_key::decode(both.first<remote_key::wire_bytes>()),
            remote_key::decode(both.last<remote_key::wire_bytes>())};
}

void serve(transport_suite& suite, channel& parent, const std::string& where) {
    node& at = suite.open_at(where);
    region memory = at.end().open_region(suite.zeroed(served_bytes), access::read_write).value();
    const shared_block block = at.end().allocate(served_bytes).value();
    region in_block = at.end().open_region(block.bytes(), access::read_write).value();
    struct answer {
        arrival what;
        operation* op = nullptr;
    };
    std::deque<answer> answers;
    at.on_arrival = [&](message& got) {
        if (got.bytes().size() > 4096) return;
        answers.push_back(
            {{got.from(), got.tag(), {got.bytes().begin(), got.bytes().end()}}, nullptr});
    };
    parent.say(served{at.end().address(), memory.key(), in_block.key()}.to_text());
    suite.until("the parent's word to stop", [&] {
        for (answer& each : answers) {
            if (each.op == nullptr)
                each.op =
                    &at.try_post(request::send(each.what.from, each.what.tag, each.what.bytes));
            if (each.op->refused() && each.op->post() == posted::full) break;
        }
        while (!answers.empty() && answers.front().op != nullptr && answers.front().op->over())
            answers.pop_front();
        return parent.overhear().has_value();
    });
}

namespace {

/// What became of the message that asks for an echo: ok when that came back.
errc ask_for_echo(transport_suite& suite, node& at, peer_id peer) {
    static std::uint64_t seed = 1000;
    auto before = std::exchange(at.on_arrival, nullptr);
    ++seed;
    operation& asked = suite.start(at, request::send(peer, seed, suite.patterned(300, seed)));
    auto echo = at.arrived.end();
    suite.until("an echo", [&] {
        echo = std::find_if(at.arrived.begin(), at.arrived.end(),
                            [&](const arrival& one) { return one.tag == seed; });
        return echo != at.arrived.end() || (asked.over() && asked.code() != errc::ok);
    });
    at.on_arrival = before;
    if (echo == at.arrived.end()) return asked.code();
    EXPECT_EQ(echo->from, peer);
    EXPECT_TRUE(is_pattern(echo->bytes, seed));
    at.arrived.erase(echo);
    return errc::ok;
}

}  // namespace

void expect_echo(transport_suite& suite, node& at, peer_id peer) {
    EXPECT_EQ(ask_for_echo(suite, at, peer), errc::ok);
}

peer_id reach(transport_suite& suite, node& at, const std::string& address) {
    constexpr int most_tries = 20;
    for (int tries = 1;; ++tries) {
        const peer_id peer = at.end().lookup(address).value();
        const errc reached = ask_for_echo(suite, at, peer);
        if (reached != errc::unreachable || tries == most_tries) {
            EXPECT_EQ(reached, errc::ok) << address;
            return peer;
        }
        suite.until("the word that nobody was reached", [&] { return at.has_lost(peer); });
        std::erase_if(at.lost, [&](const peer_loss& loss) { return loss.peer == peer; });
    }
}

}  // namespace amalgam::conformance
