#include "fabric/sealing/carrier.hpp"

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include <fmt/format.h>

#include <amalgam/core/limited_log.hpp>

#include "fabric/packets/port.hpp"
#include "fabric/sealing/one_sided.hpp"

namespace amalgam::detail {
namespace {

sealed_link& sealed(packet_link& below) noexcept {
    return *static_cast<sealed_link*>(below.user);
}

}  // namespace

sealed_carrier::sealed_carrier(std::unique_ptr<introducing_carrier> below, std::size_t packet_bytes)
    : ciphers_(ciphers_here()),
      pool_(packet_bytes),
      opened_(new std::byte[packet_bytes]),
      below_(std::move(below)) {
    if (one_sided_carrier* const also = below_->one_sided())
        one_sided_ = std::make_unique<sealed_one_sided>(*also);
}

sealed_carrier::~sealed_carrier() = default;

void sealed_carrier::start(packet_events& events) noexcept {
    events_ = &events;
    below_->start(*this);
}

std::string sealed_carrier::explain() const {
    const packet_cipher best = *choose_cipher(ciphers_, ciphers_);
    std::string all = fmt::format("{}; each packet is sealed by {}", below_->explain(), name(best));
    if (best == packet_cipher::aes_256_gcm)
        all += " (XChaCha20-Poly1305 where the peer has no instructions for AES)";
    if (passes_unsealed())
        all += ", but puts and gets of the library's own are not, as the URI trusts the wire";
    return all + fmt::format(
                     "; {} packets that were changed, repeated, left out or moved on their "
                     "way have ended their connections so far",
                     refused_);
}

/// Whether transfers of the carrier below leave the host as they are.
bool sealed_carrier::passes_unsealed() const noexcept {
    return one_sided_ != nullptr && one_sided_->one_sided_traits().mode != rma_mode::cross_memory;
}

one_sided_carrier* sealed_carrier::one_sided() noexcept {
    return one_sided_.get();
}

// ---- links

sealed_link& sealed_carrier::add(packet_link* below, std::string address) {
    auto made = std::make_unique<sealed_link>(*this);
    made->address_ = std::move(address);
    made->inner_ = below;
    links_.push_back(std::move(made));
    return *links_.back();
}

void sealed_carrier::remove(sealed_link& link) noexcept {
    drop_held(link);
    const auto at = std::find_if(links_.begin(), links_.end(),
                                 [&](const auto& each) { return each.get() == &link; });
    at->swap(links_.back());
    links_.pop_back();
}

result<packet_link*> sealed_carrier::connect(std::string_view address) {
    sealed_link& made = add(nullptr, std::string(address.substr(0, address.find('?'))));
    try {
        result<packet_link*> link = below_->connect(address);
        if (link) {
            made.inner_ = *link;
            made.inner_->user = &made;
            return static_cast<packet_link*>(&made);
        }
        remove(made);
        return link.why();
    } catch (...) {
        remove(made);
        throw;
    }
}

bool sealed_carrier::accepted(packet_link& below, std::string address) noexcept try {
    sealed_link& made = add(&below, address);
    below.user = &made;
    if (events_->accepted(made, std::move(address))) return true;
    below.user = nullptr;
    remove(made);
    return false;
} catch (const std::bad_alloc&) {
    return false;
}

void sealed_carrier::release(packet_link& link) noexcept {
    auto& one = static_cast<sealed_link&>(link);
    below_->release(*one.inner_);
    remove(one);
}

void sealed_link::close() noexcept {
    if (std::exchange(over_, true)) return;
    (void)home_.send_held(*this);  // Once more: then it is lost, as what its sender still queues.
    inner_->close();
}

void sealed_carrier::down(packet_link& below, status why) noexcept {
    sealed_link& link = sealed(below);
    if (std::exchange(link.over_, true)) return;
    drop_held(link);
    events_->down(link, why);
}

/// The end of a link, inside progress().
void sealed_carrier::fail(sealed_link& link, status why) noexcept {
    if (std::exchange(link.over_, true)) return;
    drop_held(link);
    link.inner_->close();
    ++told_;
    events_->down(link, why);
}

// ---- keys

/// False: there can be none, and the link has ended.
bool sealed_carrier::has_keys(sealed_link& link) noexcept {
    if (link.keys_ != nullptr) [[likely]]
        return true;
    const std::unique_ptr<link_secrets> secrets = below_->take_secrets(*link.inner_);
    if (secrets == nullptr) {
        fail(link, {errc::disconnected, EPROTO});
        return false;
    }
    const auto cipher = choose_cipher(ciphers_, secrets->their_ciphers);
    if (!cipher) {
        fail(link, {errc::mismatch});
        return false;
    }
    link.keys_ = make_packet_keys(*cipher, *secrets);
    link.who_ = std::move(secrets->who);
    if (link.keys_ == nullptr) fail(link, {errc::no_memory, ENOMEM});
    return link.keys_ != nullptr;
}

// ---- sending

posted sealed_link::send(packet& one) noexcept {
    return home_.send(*this, one);
}

posted sealed_carrier::send(sealed_link& by, packet& one) noexcept {
    if (by.keys_ == nullptr || by.held_ != nullptr || by.over_) return posted::full;
    packet* const made = pool_.take();
    if (made == nullptr) {
        by.was_refused_ = has_refused_ = true;
        events_->due();
        return posted::full;
    }
    by.keys_->sending.seal({one.data, one.bytes}, made->data);
    made->bytes = one.bytes + static_cast<std::uint32_t>(packet_key::tag_bytes);
    by.held_ = made;
    (void)send_held(by);
    return posted::done;
}

/// False: the carrier below does not take it yet.
bool sealed_carrier::send_held(sealed_link& link) noexcept {
    if (link.held_ == nullptr) return true;
    const posted how = link.inner_->send(*link.held_);
    if (how == posted::full) return false;
    packet* const gone = std::exchange(link.held_, nullptr);
    if (how == posted::done) pool_.give_back(*gone);
    return true;
}

void sealed_carrier::drop_held(sealed_link& link) noexcept {
    if (packet* const left = std::exchange(link.held_, nullptr)) pool_.give_back(*left);
}

void sealed_carrier::room(packet_link& below) noexcept {
    sealed_link& link = sealed(below);
    if (link.over_ || !has_keys(link) || !send_held(link)) return;
    events_->room(link);
}

/// Memory may be there again.
void sealed_carrier::tell_refused() noexcept {
    has_refused_ = false;
    for (std::size_t i = 0; i < links_.size(); ++i) {
        sealed_link& link = *links_[i];
        if (!std::exchange(link.was_refused_, false) || link.over_ || link.held_ != nullptr)
            continue;
        ++told_;
        events_->room(link);
    }
}

// ---- receiving

void sealed_carrier::received(packet_link& below, const_bytes bytes) noexcept {
    sealed_link& link = sealed(below);
    if (link.over_ || !has_keys(link)) return;
    if (bytes.size() > pool_.packet_bytes() || !link.keys_->receiving.open(bytes, opened_.get()))
        return refuse(link, bytes);
    events_->received(link, {opened_.get(), bytes.size() - packet_key::tag_bytes});
}

void sealed_carrier::refuse(sealed_link& link, const_bytes bytes) noexcept {
    ++refused_;
    try {
        limited_log(
            log_level::warn, "fabric",
            "ended a connection: a packet was changed, repeated, left out or moved on its "
            "way, or came from somebody else",
            {{"peer", link.address_}, {"who", to_text(link.who_)}, {"packet_bytes", bytes.size()}});
    } catch (const std::bad_alloc&) {  // Not logged then.
    }
    fail(link, {errc::disconnected, EPROTO});
}

std::size_t sealed_carrier::progress(std::size_t budget) noexcept {
    told_ = 0;
    if (has_refused_) [[unlikely]]
        tell_refused();
    const std::size_t ran = below_->progress(budget);
    return ran + told_;
}

std::unique_ptr<port> make_sealed_port(std::unique_ptr<introducing_carrier> below,
                                       packet_port_traits traits, const port_options& options) {
    auto made = std::make_unique<sealed_carrier>(std::move(below), traits.packet_bytes);
    const link_identities* const identities = made.get();
    traits.packet_bytes = sealed_carrier::room_for(traits.packet_bytes);
    return std::make_unique<packet_port>(std::move(made), traits, options, identities);
}

}  // namespace amalgam::detail
