#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fabric/packets/introduction.hpp"
#include "fabric/packets/scripted_carrier.hpp"
#include "fuzz/fuzz.hpp"

// What a peer says to be introduced to a port of ofi or ucx, after TLS has let it in, and what the
// URIs of such ports say of protection. The input's first byte says whether the ends prove who they
// are, and which of them calls; then come the peer's messages: what each is, its length, its bytes.
// The whole of it is read as a URI, too.
namespace amalgam::fuzz {

namespace {

using namespace detail;

enum does : unsigned {
    introduces,
    introduces_us,  ///< With our scheme, and the bytes behind it.
    says_farewell,
    says_other,
    sends_a_packet,
    turns_around,  ///< It says what we said first, our own id included.
    waits
};

/// The context in place of a key.
bool told_key(port&, peer_id, std::string_view label, const_bytes context, mutable_bytes into) {
    require(label == link_key_label && context.size() == 16, "a key is for both ends' ids");
    std::fill(into.begin(), into.end(), std::byte{});
    std::copy(context.begin(), context.end(), into.begin());
    return true;
}

class peer_of_carrier {
public:
    peer_of_carrier(bool proves, bool is_called)
        : proves_(proves), scheme_(proves ? "test+tcp+tls" : "test+tcp") {
        here_.start(events_);
        if (is_called) {
            auto called = here_.connect(scheme_ + "://127.0.0.1:7000");
            link_ = static_cast<introduced_link*>(std::move(called).value());
            peer_ = inner_->links.back().get();
        } else {
            peer_ = &inner_->peer();
        }
    }

    void go_on(does what, const_bytes bytes) {
        std::vector<std::byte> said(bytes.begin(), bytes.end());
        switch (what) {
            case introduces_us:
                said = introduction(scheme_);
                said.insert(said.end(), bytes.begin(), bytes.end());
                [[fallthrough]];
            case introduces:
                meet(said);
                return say(introduction_tag, said);
            case says_farewell:
                if (is_known() && bytes.size() != 8) is_wrong_ = true;
                return say(farewell_tag, said);
            case says_other:
                is_wrong_ = is_wrong_ || is_known();
                return say(introduction_tag + 2 + bytes.size(), said);
            case turns_around:
                if (peer_->out.empty()) return;
                said = peer_->out.front().payload;
                meet(said, false);
                return say(introduction_tag, said);
            case sends_a_packet:
                if (events_.rooms == 0 || !events_.downs.empty()) return;
                here_.arrived(*link_, bytes);
                ++packets_;
                return;
            default:
                here_.progress(64);
        }
    }

    void check() {
        here_.progress(64);
        require(events_.rooms <= 1 && events_.downs.size() <= 1, "a connection ends once");
        require((events_.rooms == 1) == is_met_, "it opens if its introduction is right, only");
        require(events_.downs.empty() != is_wrong_, "who says what is wrong is let go");
        require(events_.packets == packets_, "each packet is told");
        if (link_ == nullptr) return;
        const auto secrets = here_.take_secrets(*link_);
        require((secrets != nullptr) == (proves_ && is_met_), "there are keys where ends prove");
        if (secrets == nullptr) return;
        require(secrets->sending != secrets->receiving, "each direction has its own key");
        require(secrets->their_ciphers == ciphers_, "the peer's ciphers are those it told");
        require(load_le<std::uint64_t>(secrets->sending.data()) == their_id_,
                "keys are of this connection");
    }

private:
    /// What a stranger says before his introduction is passed over.
    bool is_known() const noexcept { return link_ != nullptr; }

    /// What must become of an introduction.
    void meet(const std::vector<std::byte>& said, bool is_theirs = true) {
        if (is_over() || is_wrong_) return;
        if (is_met_) {
            is_wrong_ = true;
            return;
        }
        const std::size_t scheme_bytes =
            said.size() < 10 ? 0 : load_le<std::uint16_t>(said.data() + 8);
        const std::string all(reinterpret_cast<const char*>(said.data()), said.size());
        const std::size_t ciphers_at = 10 + scheme_.size();
        is_met_ = said.size() >= 10 && scheme_bytes == scheme_.size() &&
                  all.compare(10, scheme_.size(), scheme_) == 0 &&
                  (!proves_ || (is_theirs && said.size() > ciphers_at));
        is_wrong_ = !is_met_;
        if (!is_met_) return;
        their_id_ = load_le<std::uint64_t>(said.data());
        if (proves_) ciphers_ = std::to_integer<std::uint8_t>(said[ciphers_at]);
    }
    void say(std::uint64_t tag, const std::vector<std::byte>& bytes) {
        if (is_over()) return;
        (void)inner_->deliver_bytes(*peer_, frame_kind::unexpected, tag, bytes);
        if (!events_.links.empty()) link_ = events_.links.front();
    }
    bool is_over() const noexcept { return peer_->shuts > 0; }

    const bool proves_;
    const std::string scheme_;
    int released_ = 0;
    noted_events events_;
    scripted_port* const inner_ = new scripted_port;
    scripted_carrier here_{std::unique_ptr<port>(inner_), released_,
                           proves_ ? introduction_trust{&told_key, 3} : introduction_trust{}};
    scripted_link* peer_ = nullptr;
    introduced_link* link_ = nullptr;
    // What must have come of it all.
    bool is_met_ = false;
    bool is_wrong_ = false;
    int packets_ = 0;
    std::uint64_t their_id_ = 0;
    std::uint8_t ciphers_ = 0;
};

void check_uri(std::string_view text) {
    const auto parsed = parse_uri(text);
    if (!parsed) return;
    uri rest = *parsed;
    const auto trust = take_trust(rest);
    if (!trust) {
        require(trust.code() == errc::invalid && !trust.sentence().empty(),
                "what is refused is told");
        return;
    }
    require(!trust->trusted_wire || trust->tls, "a wire is trusted only by name");
    require(trust->tls || !parsed->protocol.ends_with("+tls"), "what asks for TLS gets it");
    require(!rest.option(trusted_wire_option), "it is taken out");
    const uri below = introduction_uri(*parsed);
    require(below.scheme == "tcp" && (below.protocol == "tls") == trust->tls,
            "ends are introduced over TLS where they asked for it");
    require(below.host == parsed->host && below.port == parsed->port, "and at the same place");
}

}  // namespace

void run_one(const_bytes input) {
    check_uri({reinterpret_cast<const char*>(input.data()), input.size()});
    if (input.empty()) return;
    const auto first = std::to_integer<unsigned>(input[0]);
    peer_of_carrier peer((first & 1) != 0, (first & 2) != 0);
    const_bytes left = input.subspan(1);
    while (left.size() >= 2) {
        const does what{std::to_integer<unsigned>(left[0]) % 7};
        const auto bytes = std::to_integer<std::size_t>(left[1]);
        left = left.subspan(2);
        const const_bytes said = left.first(std::min(bytes, left.size()));
        left = left.subspan(said.size());
        peer.go_on(what, said);
    }
    peer.check();
}

std::span<const std::string_view> seeds() {
    using namespace std::string_view_literals;
    static constexpr std::array<std::string_view, 13> all{
        "\3\5\0"sv,
        "\0\1\0\4\2ab\2\x8\1\0\0\0\0\0\0\0\6\0"sv,
        "\1\1\1\3\4\1x\4\0"sv,
        "\2\1\0\4\1x\1\0"sv,  // It introduces itself twice.
        "\3\1\5\1name\2\7\0\0\0\0\0\0\0"sv,
        "\1\0\x17\1\2\3\4\5\6\7\x8\xc\0test+tcp+tls\2"sv,
        "\1\0\x12\1\2\3\4\5\6\7\x8\x8\0test+tcp"sv,
        "\0\0\x12\1\2\3\4\5\6\7\x8\x8\0test+tcp"sv,
        "\3\1\0\3\1x"sv,
        "ofi+tcp+tls://eth0:7000?credentials=/etc/lab&trusted_wire=yes"sv,
        "ucx+tcp+tls://mlx5_0:1/10.0.0.1:7000?trusted_wire=no"sv,
        "ofi+verbs;ofi_rxm://[::1]:7000?insecure=yes"sv,
        "ucx+tcp+tls://h:1?insecure=yes"sv};
    return all;
}

}  // namespace amalgam::fuzz
