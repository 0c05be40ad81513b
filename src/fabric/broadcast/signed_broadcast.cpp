#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <amalgam/core/detail/has_type.hpp>
#include <amalgam/core/limited_log.hpp>
#include <amalgam/core/random.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/fabric/credentials.hpp>
#include <amalgam/fabric/signed_broadcast.hpp>

#include "fabric/broadcast/broadcast_receiver.hpp"
#include "fabric/broadcast/replay_windows.hpp"
#include "fabric/limits.hpp"
#include "fabric/trust/credentials/credential_store.hpp"
#include "fabric/trust/credentials/signatures.hpp"

namespace amalgam {
namespace {

using namespace detail;
using wall_clock = std::chrono::system_clock;

constexpr std::string_view signed_as = "amalgam broadcast 1";

/// In front of the payload, and as long as keeps that aligned.
struct header {
    static constexpr std::size_t bytes = 48;
    static constexpr std::uint32_t magic = 0x73446d41;  // "AmDs"
    static constexpr std::uint32_t version = 1;

    std::uint64_t run = 0;
    std::uint64_t number = 0;
    std::int64_t sent_ns = 0;
    std::uint32_t payload_bytes = 0;
    std::uint32_t certificate_bytes = 0;

    void write(std::byte* to) const noexcept {
        store_le(to, magic);
        store_le(to + 4, version);
        store_le(to + 8, run);
        store_le(to + 16, number);
        store_le(to + 24, sent_ns);
        store_le(to + 32, payload_bytes);
        store_le(to + 36, certificate_bytes);
        store_le(to + 40, std::uint64_t{0});
    }
    static std::optional<header> read(const_bytes packet) noexcept {
        if (packet.size() < bytes || load_le<std::uint32_t>(packet.data()) != magic ||
            load_le<std::uint32_t>(packet.data() + 4) != version)
            return std::nullopt;
        const std::byte* const at = packet.data();
        return header{load_le<std::uint64_t>(at + 8), load_le<std::uint64_t>(at + 16),
                      load_le<std::int64_t>(at + 24), load_le<std::uint32_t>(at + 32),
                      load_le<std::uint32_t>(at + 36)};
    }
};

/// The certificates that were verified, so that it is done once for each.
///
/// Threads: one at a time.
class known_signers {
public:
    /// Null: not trusted. Valid until the next call.
    const verified_signer* find(const std::shared_ptr<const loaded_credentials>& by,
                                const_bytes certificate, wall_clock::time_point now) {
        if (by != by_) {  // What was trusted before may be revoked now.
            all_.clear();
            by_ = by;
        }
        const std::string_view key(reinterpret_cast<const char*>(certificate.data()),
                                   certificate.size());
        auto at = all_.find(key);
        if (at == all_.end()) {
            auto made = verified_signer::of(*by, certificate);
            if (!made) return nullptr;
            if (all_.size() >= limits::max_signers) all_.clear();
            at = all_.emplace(key, std::move(*made)).first;
        }
        return at->second.expires() < now ? nullptr : &at->second;
    }

private:
    std::shared_ptr<const loaded_credentials> by_;
    std::map<std::string, verified_signer, std::less<>> all_;
};

using signed_receiver = std::function<void(const_bytes, const identity&)>;

class signed_broadcast final : public broadcast_medium {
public:
    signed_broadcast(std::shared_ptr<broadcast_medium> on, std::shared_ptr<const credentials> by,
                     signed_broadcast_options options)
        : on_(std::move(on)),
          by_(std::move(by)),
          options_(std::move(options)),
          windows_(options_.window) {
        if (!options_.now) options_.now = &wall_clock::now;
        constexpr std::size_t least_room = 256;
        const std::size_t taken = bytes_taken();
        if (on_->max_bytes() < taken + least_room)
            throw error(errc::invalid,
                        fmt::format("packets of {} bytes cannot be signed as {}, whose certificate "
                                    "and signature take {}; expected a key of Ed25519 or P-256; "
                                    "example: amalgam key new node7 --with lab",
                                    on_->max_bytes(), to_text(by_->self()), taken));
    }
    ~signed_broadcast() override {
        if (listens_) on_->listen({});  // Else somebody else may by now.
    }

    void listen(receiver function) override {
        if (!function) {
            listens_ = false;
            return on_->listen({});
        }
        listen_signed([function = std::move(function)](const_bytes payload, const identity&) {
            function(payload);
        });
    }

    void listen_signed(signed_receiver function) {
        listens_ = true;
        on_->listen(
            [this, function = std::move(function)](const_bytes packet) { take(function, packet); });
    }

    bool send(const_bytes payload) noexcept override {
        try {
            return on_->send(signed_packet(payload));
        } catch (const std::exception&) {
            return false;  // Out of memory.
        }
    }

    std::size_t max_bytes() const noexcept override {
        try {
            const std::size_t taken = bytes_taken();
            return on_->max_bytes() - std::min(on_->max_bytes(), taken);
        } catch (const std::exception&) {
            return 0;  // Out of memory.
        }
    }

private:
    std::size_t bytes_taken() const {
        const auto own = by_->store().current();
        return header::bytes + certificate_bytes(*own).size() + max_signature_bytes(*own);
    }

    std::vector<std::byte> signed_packet(const_bytes payload) {
        const auto own = by_->store().current();
        const std::vector<std::byte> certificate = certificate_bytes(*own);
        std::vector<std::byte> all(header::bytes);
        const auto since = options_.now().time_since_epoch();
        header{run_, numbers_.fetch_add(1, std::memory_order_relaxed),
               std::chrono::duration_cast<std::chrono::nanoseconds>(since).count(),
               static_cast<std::uint32_t>(payload.size()),
               static_cast<std::uint32_t>(certificate.size())}
            .write(all.data());
        all.insert(all.end(), payload.begin(), payload.end());
        all.insert(all.end(), certificate.begin(), certificate.end());
        const std::vector<std::byte> signature = sign(*own, signed_as, all);
        all.insert(all.end(), signature.begin(), signature.end());
        return all;
    }

    void take(const signed_receiver& function, const_bytes packet) {
        const auto head = header::read(packet);
        if (!head) return refuse(broadcast_refusal::malformed);
        if (head->run == run_) return;  // Its own, which it hears, too.
        const const_bytes rest = packet.subspan(header::bytes);
        if (head->payload_bytes > rest.size() ||
            head->certificate_bytes > rest.size() - head->payload_bytes)
            return refuse(broadcast_refusal::malformed);
        const const_bytes payload = rest.first(head->payload_bytes);
        const std::size_t signed_bytes =
            header::bytes + head->payload_bytes + head->certificate_bytes;
        identity who;
        if (const auto why = judge(*head, rest.subspan(payload.size(), head->certificate_bytes),
                                   packet.first(signed_bytes), packet.subspan(signed_bytes), who))
            return refuse(*why);
        function(payload, who);
    }

    std::optional<broadcast_refusal> judge(const header& head, const_bytes certificate,
                                           const_bytes statement, const_bytes signature,
                                           identity& who) {
        const wall_clock::time_point now = options_.now();
        const std::lock_guard one(lock_);
        const verified_signer* const by = signers_.find(by_->store().current(), certificate, now);
        if (by == nullptr) return broadcast_refusal::untrusted;
        if (options_.takes && !options_.takes(by->who())) return broadcast_refusal::not_allowed;
        if (!by->signed_by(signed_as, statement, signature)) return broadcast_refusal::untrusted;
        if (!is_fresh(head.sent_ns, now)) {
            limited_log(
                log_level::warn, "fabric", "refused an old broadcast; if it is not, set the clocks",
                {{"from", to_text(by->who())}, {"seconds_allowed", options_.window.count()}});
            return broadcast_refusal::stale;
        }
        switch (windows_.note(by->who().key, head.run, head.number, now)) {
            case replay_windows::outcome::fresh:
                who = by->who();
                return std::nullopt;
            case replay_windows::outcome::repeated:
                return broadcast_refusal::repeated;
            case replay_windows::outcome::crowded:
                break;
        }
        return broadcast_refusal::crowded;
    }

    bool is_fresh(std::int64_t sent_ns, wall_clock::time_point now) const noexcept {
        const std::int64_t window = std::chrono::nanoseconds(options_.window).count();
        const std::int64_t present =
            std::chrono::duration_cast<std::chrono::nanoseconds>(now.time_since_epoch()).count();
        // Without overflow, whatever the packet says.
        return sent_ns >= present - window && sent_ns <= present + window;
    }

    void refuse(broadcast_refusal why) const {
        if (options_.on_refused) options_.on_refused(why);
    }

    const std::shared_ptr<broadcast_medium> on_;
    const std::shared_ptr<const credentials> by_;
    signed_broadcast_options options_;  // Constant once constructed.
    const std::uint64_t run_ = random_nonzero_u64();
    std::atomic<std::uint64_t> numbers_{1};
    std::atomic<bool> listens_{false};

    std::mutex lock_;  // Guards what follows; a medium may deliver on several threads in turn.
    known_signers signers_;
    replay_windows windows_;
};

}  // namespace

void listen_to_signed(broadcast_medium& on,
                      std::function<void(const_bytes, const identity&)> receiver) {
    auto* const medium = detail::cast_if_typed<signed_broadcast>(on);
    if (medium == nullptr)
        throw error(errc::invalid,
                    "packets of this medium are not signed, so nobody can tell who sent one; "
                    "expected a medium of sign_broadcasts()");
    medium->listen_signed(std::move(receiver));
}

std::string_view name(broadcast_refusal why) noexcept {
    switch (why) {
        case broadcast_refusal::malformed:
            return "malformed";
        case broadcast_refusal::untrusted:
            return "untrusted";
        case broadcast_refusal::not_allowed:
            return "not_allowed";
        case broadcast_refusal::stale:
            return "stale";
        case broadcast_refusal::repeated:
            return "repeated";
        case broadcast_refusal::crowded:
            break;
    }
    return "crowded";
}

std::shared_ptr<broadcast_medium> sign_broadcasts(std::shared_ptr<broadcast_medium> on,
                                                  std::shared_ptr<const credentials> by,
                                                  signed_broadcast_options options) {
    if (by->store().in_force()->shared() != nullptr)
        throw error(errc::invalid,
                    fmt::format("broadcasts cannot be signed by the pre-shared key {}, which every "
                                "reader of them would need, expected a certificate; example: "
                                "amalgam key new node7 --with lab",
                                to_text(by->self())));
    return std::make_shared<signed_broadcast>(std::move(on), std::move(by), std::move(options));
}

}  // namespace amalgam
