#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <amalgam/fabric/signed_broadcast.hpp>

#include "fabric/trust/tls/tls_testing.hpp"
#include "fuzz/fuzz.hpp"

// Packets that a signed medium receives: passed on if they are what a certified sender sent, letter
// by letter, and once; else refused.
namespace amalgam::fuzz {

namespace {

struct wire final : broadcast_medium {
    void listen(receiver function) override { hears = std::move(function); }
    bool send(const_bytes bytes) noexcept override {
        last.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        return true;
    }
    std::size_t max_bytes() const noexcept override { return 1400; }

    receiver hears;
    std::string last;
};

const detail::test_lab& the_lab() {
    static const detail::test_lab one{};
    return one;
}

const std::vector<std::string>& genuine() {
    static const std::vector<std::string> all = [] {
        const auto raw = std::make_shared<wire>();
        const auto sender = sign_broadcasts(raw, the_lab().trust);
        std::vector<std::string> made;
        for (const std::string& each :
             {std::string(), std::string("payload"), std::string(500, 'x')}) {
            require(sender->send(as_bytes_of(each)), "it can be sent");
            made.push_back(raw->last);
        }
        return made;
    }();
    return all;
}

}  // namespace

void run_one(const_bytes input) {
    const auto raw = std::make_shared<wire>();
    int passed = 0, refused = 0;
    const auto medium = sign_broadcasts(
        raw, the_lab().trust,
        // However long this runs.
        {.on_refused = [&](broadcast_refusal) { ++refused; }, .window = std::chrono::hours(1000)});
    medium->listen([&](const_bytes) { ++passed; });
    alignas(16) std::byte packet[2048];
    const std::size_t bytes = std::min(input.size(), sizeof packet);
    if (bytes != 0) std::memcpy(packet, input.data(), bytes);
    const std::string_view text(reinterpret_cast<const char*>(packet), bytes);
    raw->hears({packet, bytes});
    raw->hears({packet, bytes});
    const auto& all = genuine();
    const bool is_genuine = std::find(all.begin(), all.end(), text) != all.end();
    require(passed == (is_genuine ? 1 : 0), "only what was sent passes, and once");
    require(passed + refused == 2, "each that does not is told of");
}

std::span<const std::string_view> seeds() {
    static const std::vector<std::string_view> views(genuine().begin(), genuine().end());
    return views;
}

}  // namespace amalgam::fuzz
