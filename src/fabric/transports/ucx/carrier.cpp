#include "fabric/transports/ucx/carrier.hpp"

#include <algorithm>
#include <cerrno>
#include <new>
#include <optional>
#include <utility>

#include <amalgam/core/limited_log.hpp>
#include <amalgam/core/log.hpp>
#include <amalgam/core/uri.hpp>

#include "fabric/limits.hpp"
#include "fabric/sockets/interfaces.hpp"
#include "fabric/sockets/resolver.hpp"
#include "fabric/sockets/socket_address.hpp"

namespace amalgam::detail {
namespace {

constexpr unsigned packet_id = 1;  // Id of our active messages.

// For shared memory: if an unfinished entry blocks the queue this long after a peer was lost,
// nothing will arrive any more.
constexpr std::chrono::seconds stuck_after{1};
// If UCX claims work this often without progress, we sleep for a moment anyway.
constexpr unsigned enough_idle_looks = 1000;

}  // namespace

// ---- sending

posted ucx_link::send(packet& one) noexcept {
    if (!is_open() || end_ == nullptr || end_->failed || asked_to_close_) return posted::full;
    ucp_request_param_t how{};
    how.op_attr_mask =
        UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    how.flags = UCP_AM_SEND_FLAG_EAGER;
    how.cb.send = &ucx_carrier::on_sent;
    how.user_data = &one;
    one.carrier_words[0] = reinterpret_cast<std::uintptr_t>(this);
    void* const request = ucp_am_send_nbx(end_->endpoint, packet_id, &header_, sizeof header_,
                                          one.data, one.bytes, &how);
    if (UCS_PTR_IS_ERR(request)) {
        ucx_carrier::on_failure(end_, end_->endpoint, UCS_PTR_STATUS(request));
        return posted::full;
    }
    count_sent();
    if (request == nullptr) return posted::done;
    ++lent_;
    ++carrier_->lent_;
    return posted::pending;
}

void ucx_carrier::on_sent(void* request, ucs_status_t, void* sent) noexcept {
    auto& one = *static_cast<packet*>(sent);
    auto& link = *reinterpret_cast<ucx_link*>(one.carrier_words[0]);
    --link.lent_;
    --link.carrier_->lent_;
    link.carrier_->events().returned(one);
    ucp_request_free(request);
}

// ---- receiving

ucs_status_t ucx_carrier::on_packet(void* self, const void* header, std::size_t header_bytes,
                                    void* data, std::size_t bytes,
                                    const ucp_am_recv_param_t* how) noexcept {
    auto& carrier = *static_cast<ucx_carrier*>(self);
    ++carrier.came_;
    if (header_bytes != sizeof(std::uint64_t) || (how->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0)
        return UCS_OK;
    introduced_link* link = carrier.find(load_le<std::uint64_t>(header));
    if (link == nullptr) return UCS_OK;
    static_cast<ucx_link*>(link)->heard_ = true;
    carrier.arrived(*link, {static_cast<const std::byte*>(data), bytes});
    return UCS_OK;
}

std::size_t ucx_carrier::move_packets(std::size_t budget) noexcept {
    came_ = 0;
    while (ucp_worker_progress(worker_->get()) != 0 && came_ < budget) {
    }
    if (came_ > 0) idle_looks_ = 0;
    if (suspects_queue_) look_for_stuck_queue();
    if (needs_tending_ || !released_.empty()) tend_links();
    return came_;
}

bool ucx_carrier::arm_paths() noexcept {
    if (needs_tending_) return false;
    const bool armed = ucp_worker_arm(worker_->get()) == UCS_OK;
    // While packets find no room in shared memory, UCX never permits sleep, and nothing signals
    // room.
    if (lent_ > 0) {
        sleep_briefly(true);
        return true;
    }
    if (!with_.shares_memory) return armed;
    // A peer that is killed or stopped between writing its word and signaling it wakes nobody; one
    // halfway through writing keeps UCX from ever permitting sleep.
    if (!armed && ++idle_looks_ < enough_idle_looks) return false;
    if (!ends_.empty()) sleep_briefly(false);
    return true;
}

/// A killed process's half-written cell may stay in the queue and block packets behind it.
void ucx_carrier::look_for_stuck_queue() noexcept {
    if (came_ > 0) {
        stuck_since_ = {};
        return;
    }
    if (ucp_worker_arm(worker_->get()) == UCS_OK) {  // The queue is empty, so not stuck.
        suspects_queue_ = false;
        stuck_since_ = {};
        events().due();
        return;
    }
    const clock::time_point now = clock::steady().now();
    if (stuck_since_ == clock::time_point{}) stuck_since_ = now;
    if (now - stuck_since_ >= stuck_after) give_up();
}

void ucx_carrier::give_up() noexcept {
    suspects_queue_ = false;
    is_stuck_ = true;
    log(log_level::error, "ucx",
        "a peer was killed while it wrote into this port's shared memory: the port has lost all "
        "connections and is unusable; open another port");
    for (const auto& each : ends_)
        on_failure(each.get(), each->endpoint, UCS_ERR_CONNECTION_RESET);
}

// ---- endpoints

ucx_carrier::ucx_carrier(introducer by, std::unique_ptr<ucx_worker> worker, setup with)
    : introduced_carrier(std::move(by)), worker_(std::move(worker)), with_(std::move(with)) {
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                         UCP_AM_HANDLER_PARAM_FIELD_ARG | UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
    handler.id = packet_id;
    handler.cb = &on_packet;
    handler.arg = this;
    handler.flags = UCP_AM_FLAG_WHOLE_MSG;
    if (ucs_status_t how = ucp_worker_set_am_recv_handler(worker_->get(), &handler); how != UCS_OK)
        throw error(
            from_ucx(how, errc::unsupported),
            std::string("UCX cannot set the active message handler: ") + ucs_status_string(how));
    sleep_also_on(worker_->event_fd());
    sleep_briefly(true);
    own_name_ = worker_->name();
}

ucx_carrier::~ucx_carrier() {
    const auto until = std::chrono::steady_clock::now() + limits::flush_limit;
    while (!released_.empty() && std::chrono::steady_clock::now() < until) {
        ucp_worker_progress(worker_->get());
        tend_links();
    }
    end_introductions();
    while (!ends_.empty()) {
        ucx_end* one = ends_.back().get();
        void* closing = nullptr;
        one->link->end_ = nullptr;
        cut_off(one, closing);
        if (closing != nullptr) closing_.push_back(closing);
    }
    for (int i = 0; i < 1000 && (!released_.empty() || !closing_.empty()); ++i) {
        ucp_worker_progress(worker_->get());
        tend_links();
    }
    worker_.reset();
}

std::string ucx_carrier::explain_paths() const {
    return with_.chosen + "; puts and gets " +
           (with_.copies != nullptr ? with_.copies->explain() : with_.why_packets);
}

std::unique_ptr<introduced_link> ucx_carrier::make_link() {
    auto made = std::make_unique<ucx_link>();
    made->carrier_ = this;
    // Capacity for all, so that recording events cannot fail.
    const std::size_t count = links_ + 1;
    if (to_close_.capacity() < count) to_close_.reserve(2 * count);
    if (released_.capacity() < count) released_.reserve(2 * count);
    links_ = count;
    return made;
}

status ucx_carrier::open_path(introduced_link& link, const_bytes name) noexcept try {
    auto& one = static_cast<ucx_link&>(link);
    one.header_ = 0;
    store_le(&one.header_, one.their_id());
    if (name.empty()) return {errc::disconnected, EPROTO};
    if (is_stuck_) return {errc::disconnected, UCS_ERR_CONNECTION_RESET};
    if (!with_.between_hosts && !is_on_this_host(one)) return {errc::unreachable};
    return attach(one, name);
} catch (const std::bad_alloc&) {
    return {errc::no_memory, ENOMEM};
}

/// Logs that its tcp port was connected but none of the addresses UCX has for it can be reached.
void ucx_carrier::say_unreachable(const ucx_link& link, ucs_status_t why) const noexcept try {
    limited_log(log_level::warn, "ucx",
                "a peer was reached over tcp, but not at its UCX addresses: check for a firewall "
                "or network address translation in between",
                {{"met_at", met_at(link)}, {"reason", ucs_status_string(why)}});
} catch (const std::bad_alloc&) {  // Not logged then.
}

bool ucx_carrier::is_on_this_host(const ucx_link& link) const {
    const std::string host = uri::parse(met_at(link)).host;
    if (const auto numeric = socket_address::numeric(host, 0))
        return is_own(interface_addresses(), *numeric);
    const auto found = resolve(host, 0);
    return found && is_own(interface_addresses(), found->front());
}

/// Connects to the worker of that name. At an accepting end, UCX reuses the caller's connection,
/// even if the addresses in the caller's name are behind address translation.
status ucx_carrier::attach(ucx_link& link, const_bytes name) {
    auto made = std::make_unique<ucx_end>();
    made->carrier = this;
    made->link = &link;
    ends_.reserve(ends_.size() + 1);
    failed_.reserve(ends_.capacity());
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLER |
                        UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    params.address = reinterpret_cast<const ucp_address_t*>(name.data());
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler.cb = &on_failure;
    params.err_handler.arg = made.get();
    const ucs_status_t how = ucp_ep_create(worker_->get(), &params, &made->endpoint);
    if (how != UCS_OK) {
        std::erase(failed_, made.get());
        say_unreachable(link, how);
        return {errc::unreachable, how};
    }
    link.end_ = made.get();
    ends_.push_back(std::move(made));
    return {};
}

void ucx_carrier::on_failure(void* end, ucp_ep_h, ucs_status_t why) noexcept {
    auto& one = *static_cast<ucx_end*>(end);
    if (std::exchange(one.failed, true)) return;
    one.why = why;
    one.carrier->failed_.push_back(&one);
    one.carrier->needs_tending_ = true;
    one.carrier->events().due();
}

void ucx_carrier::close_path(introduced_link& link, bool dead) noexcept {
    auto& one = static_cast<ucx_link&>(link);
    one.dead_ = dead;
    if (dead && with_.shares_memory && !is_stuck_) suspects_queue_ = true;
    if (std::exchange(one.asked_to_close_, true) || one.end_ == nullptr) return;
    to_close_.push_back(&one);
    needs_tending_ = true;
    events().due();
}

void ucx_carrier::release_path(std::unique_ptr<introduced_link> link) noexcept {
    auto* one = static_cast<ucx_link*>(link.release());
    released_.emplace_back(one);
    needs_tending_ = true;
}

namespace {

/// Whether a UCX request is complete; then frees it.
bool is_over(void*& request) noexcept {
    if (request == nullptr) return true;
    if (!UCS_PTR_IS_ERR(request)) {
        if (ucp_request_check_status(request) == UCS_INPROGRESS) return false;
        ucp_request_free(request);
    }
    request = nullptr;
    return true;
}

}  // namespace

/// Closes an endpoint whose packets were sent, or never will be.
void ucx_carrier::cut_off(ucx_end*& end, void*& closing) noexcept {
    if (end == nullptr) return;
    ucp_request_param_t how{};
    how.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    how.flags = UCP_EP_CLOSE_FLAG_FORCE;
    closing = ucp_ep_close_nbx(end->endpoint, &how);
    failed_.erase(std::remove(failed_.begin(), failed_.end(), end), failed_.end());
    const auto at =
        std::find_if(ends_.begin(), ends_.end(), [&](const auto& one) { return one.get() == end; });
    at->swap(ends_.back());
    ends_.pop_back();
    end = nullptr;
}

/// Starts to close an endpoint: pending packets are flushed first.
void ucx_carrier::part(ucx_link& link) noexcept {
    if (link.end_ == nullptr) return;
    if (link.end_->failed || link.dead_) return cut_off(link.end_, link.closing_);
    ucp_request_param_t how{};
    link.flushing_ = ucp_ep_flush_nbx(link.end_->endpoint, &how);
    if (link.flushing_ == nullptr) cut_off(link.end_, link.closing_);
}

void ucx_carrier::tell_failed(ucx_end& end) noexcept {
    if (end.link->heard_) {
        log(log_level::info, "ucx", "a connection failed",
            {{"reason", ucs_status_string(end.why)}});
        return lost(*end.link, from_ucx(end.why));
    }
    say_unreachable(*end.link, end.why);
    lost(*end.link, {errc::unreachable, end.why});
}

/// Work that is not allowed inside UCX callbacks.
void ucx_carrier::tend_links() noexcept {
    needs_tending_ = false;
    while (!failed_.empty()) {
        ucx_end* one = failed_.back();
        failed_.pop_back();
        tell_failed(*one);
    }
    std::erase_if(closing_, [](void*& closing) { return is_over(closing); });
    while (!to_close_.empty()) {
        ucx_link* one = to_close_.back();
        to_close_.pop_back();
        part(*one);
    }
    for (std::size_t i = 0; i < released_.size();) {
        ucx_link& one = *released_[i];
        if (one.end_ != nullptr && one.flushing_ != nullptr &&
            (one.end_->failed || is_over(one.flushing_)))
            cut_off(one.end_, one.closing_);
        const bool gone = one.end_ == nullptr && one.lent_ == 0 && is_over(one.flushing_) &&
                          is_over(one.closing_);
        if (!gone) {
            ++i;
            continue;
        }
        --links_;
        released_[i].swap(released_.back());
        released_.pop_back();
    }
}

}  // namespace amalgam::detail
