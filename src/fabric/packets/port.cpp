#include "fabric/packets/port.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "fabric/limits.hpp"
#include "fabric/one_sided/frames.hpp"
#include "fabric/packets/accessible.hpp"

namespace amalgam {
namespace detail {
namespace {

capabilities abilities(const packet_port_traits& traits, bool one_sided) {
    capabilities can;
    can.transport = traits.transport;
    can.inline_bytes =
        std::min(limits::max_copy_bytes,
                 traits.packet_bytes - packet_header::wire_bytes - sizeof(frame_header));
    can.max_message_bytes = limits::max_message_bytes;
    can.eager_bytes = traits.eager_bytes;
    can.rma = one_sided ? traits.rma : rma_mode::emulated;
    can.listens = traits.listens;
    can.between_processes = traits.between_processes;
    can.between_hosts = traits.between_hosts;
    can.isolates_killed = traits.isolates_killed;
    return can;
}

packet_connection& connection_of(packet_link& link) noexcept {
    return *static_cast<packet_connection*>(link.user);
}

template <typename T>
void remove_from(std::vector<T*>& all, T& one) noexcept {
    all.erase(std::remove(all.begin(), all.end(), &one), all.end());
}

}  // namespace

packet_port::packet_port(std::unique_ptr<packet_carrier> carrier, const packet_port_traits& traits,
                         const port_options& options, const link_identities* identities)
    : framed_port(options, abilities(traits, carrier->one_sided() != nullptr)),
      identities_(identities),
      packets_(traits.packet_bytes),
      carrier_(std::move(carrier)) {
    carrier_->start(*this);
    take_own_frames(max_key_frame_bytes);
    if (one_sided_carrier* also = carrier_->one_sided()) {
        one_sided_port& self = *this;
        one_sided_ = std::make_unique<one_sided_part>(*also, self, options.silence_limit);
        start_transfers();
    }
}

packet_port::~packet_port() {
    if (is_inherited()) {
        leave_to_parent();
        return;
    }
    if (one_sided_) one_sided_->end([this] { carrier_->progress(64); }, limits::flush_limit);
    shut_everything();
    // Before completions run: what they give back may be freed.
    if (one_sided_) one_sided_->drop();
    end_everything();
    for (auto& each : connections_) {
        each->lost();
        if (each->by() != nullptr) carrier_->release(*each->by());
    }
    one_sided_.reset();
    carrier_.reset();
}

/// In a fork() child: libraries below share descriptors and memory with the parent, and wait for
/// threads that do not exist in the child.
void packet_port::leave_to_parent() noexcept {
    end_without_links();
    for (auto& each : connections_)
        (void)each.release();
    (void)one_sided_.release();
    (void)carrier_.release();
}

// ---- peers

result<std::string> packet_port::canonical(std::string_view address) const noexcept try {
    return carrier_->canonical(address);
} catch (const std::bad_alloc&) {
    return failure{{errc::no_memory}, {}};
}

result<frame_link*> packet_port::connect(std::string_view address) noexcept {
    packet_connection* made = nullptr;
    try {
        made = &make_connection(std::string(address));
        result<packet_link*> link = carrier_->connect(address);
        if (link) {
            made->begin(**link);
            if (one_sided_) (void)one_sided_of(*made);  // Asks before anything else is sent.
            return static_cast<frame_link*>(made);
        }
        remove(*made);
        return link.why();
    } catch (const std::bad_alloc&) {
        if (made != nullptr) remove(*made);
        return failure{{errc::no_memory}, {}};
    }
}

packet_connection& packet_port::make_connection(std::string address) {
    auto made = std::make_unique<packet_connection>(*this, std::move(address));
    connections_.push_back(std::move(made));
    try {
        // Capacity for all, so that adding to the lists later cannot fail.
        for (auto* list : {&with_work_, &working_})
            if (list->capacity() < connections_.size()) list->reserve(connections_.capacity());
    } catch (const std::bad_alloc&) {
        connections_.pop_back();
        throw;
    }
    return *connections_.back();
}

void packet_port::remove(packet_connection& who) noexcept {
    if (who.has_work) remove_from(with_work_, who);
    if (who.one_sided != nullptr) one_sided_->remove(*who.one_sided);
    if (who.by() != nullptr) carrier_->release(*who.by());
    const auto at = std::find_if(connections_.begin(), connections_.end(),
                                 [&](const auto& one) { return one.get() == &who; });
    at->swap(connections_.back());
    connections_.pop_back();
}

void packet_port::release(frame_link& link) noexcept {
    remove(static_cast<packet_connection&>(link));
}

void packet_port::resume(frame_link& link) noexcept {
    auto& who = static_cast<packet_connection&>(link);
    who.go_on();
    has_work(who);
}

void packet_port::link_lost(packet_connection& who, status why) noexcept {
    link_down(who, why);
}

result<region> packet_port::open_region(scatter segments, access rights) noexcept {
    if (const auto can = check_accessible(segments, rights); !can) return can.why();
    return framed_port::open_region(segments, rights);
}

// ---- upcalls from the carrier

bool packet_port::accepted(packet_link& link, std::string address) noexcept try {
    packet_connection& made = make_connection(std::move(address));
    made.begin(link);
    if (framed_port::accepted(made, made.address())) {
        if (one_sided_) (void)one_sided_of(made);
        return true;
    }
    made.lost();
    link.user = nullptr;
    if (made.has_work) remove_from(with_work_, made);
    connections_.pop_back();
    return false;
} catch (const std::bad_alloc&) {
    return false;
}

void packet_port::received(packet_link& link, const_bytes bytes) noexcept {
    connection_of(link).received(bytes);
}

void packet_port::room(packet_link& link) noexcept {
    packet_connection& who = connection_of(link);
    who.room();
    has_work(who);
}

void packet_port::down(packet_link& link, status why) noexcept {
    packet_connection& who = connection_of(link);
    if (who.is_over()) return;
    who.lost();
    link_down(who, why);
}

// ---- rounds

void packet_port::has_work(packet_connection& who) noexcept {
    if (std::exchange(who.has_work, true)) return;
    with_work_.push_back(&who);
}

void packet_port::work_off() noexcept {
    if (with_work_.empty()) return;
    std::swap(with_work_, working_);  // Callbacks may add to with_work_ meanwhile.
    for (packet_connection* who : working_) {
        who->has_work = false;
        who->work_off();
    }
    working_.clear();
}

std::size_t packet_port::move_frames(std::size_t budget) noexcept {
    budget_ = budget;
    has_due_work_ = false;
    if (one_sided_) one_sided_->progress();
    work_off();
    if (budget_ > 0) {
        carrier_->progress(budget_);
        if (one_sided_) one_sided_->look_at_limits();
    }
    work_off();
    const std::size_t moved = budget - std::exchange(budget_, 0);
    // Who waits for a transfer posts the next one now, not after another look at the library, which
    // costs system calls.
    return one_sided_ && moved < budget ? moved + run_due(budget - moved) : moved;
}

bool packet_port::arm() noexcept {
    if (std::exchange(has_new_room_, false)) return false;
    if (one_sided_ && !one_sided_->may_sleep()) return false;
    return !has_due_work_ && with_work_.empty() && carrier_->arm();
}

}  // namespace detail

std::unique_ptr<port> make_packet_port(std::unique_ptr<packet_carrier> carrier,
                                       const packet_port_traits& traits,
                                       const port_options& options) {
    return std::make_unique<detail::packet_port>(std::move(carrier), traits, options);
}

}  // namespace amalgam
