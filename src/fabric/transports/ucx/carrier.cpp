#include "fabric/transports/ucx/carrier.hpp"

#include <algorithm>
#include <array>
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
#include "fabric/sockets/spare_descriptors.hpp"
#include "fabric/sockets/spare_memory.hpp"

namespace amalgam::detail {
namespace {

// Room for the other end's queue and buffers, and some for UCX.
constexpr std::size_t connection_bytes = std::size_t{16} << 20;
constexpr std::size_t connection_descriptors = 4;
// UCX ends the process if it finds no memory while it closes an endpoint, so that waits.
constexpr std::size_t closing_bytes = std::size_t{1} << 20;

// Too long for a cell of a queue in shared memory: for it UCX attaches the other end's buffers, at
// once and not with a packet later, when memory may lack.
constexpr std::array<std::byte, 1024> not_inline{};
// If UCX claims work this often without progress, we sleep for a moment anyway.
constexpr unsigned enough_idle_looks = 1000;
// A port that never sleeps asks UCX after so many rounds without a packet.
constexpr unsigned enough_idle_rounds = 4096;

}  // namespace

std::size_t ucx_carrier::move_packets(std::size_t budget) noexcept {
    came_ = 0;
    const std::uint64_t errors_before = ucx_errors();
    while (ucp_worker_progress(worker_->get()) != 0 && came_ < budget) {
    }
    if (ucx_errors() != errors_before) end_unfinished();
    if (came_ > 0) {
        idle_looks_ = 0;
        idle_rounds_ = 0;
    } else if (++idle_rounds_ % enough_idle_rounds == 0) {
        doubts_queue_ = with_.shares_memory && !is_stuck_;
    }
    if (suspects_queue_ || doubts_queue_) look_for_stuck_queue();
    if (awaits_answers_ && lent_ > 0) end_unanswered();
    if (!uncounted_.empty()) send_counts();
    if (needs_tending_ || !to_close_.empty() || !released_.empty()) tend_links();
    return came_;
}

bool ucx_carrier::arm_paths() noexcept {
    // What UCX holds is counted once it has left.
    if (needs_tending_ || (!uncounted_.empty() && lent_ == 0)) return false;
    const bool armed = ucp_worker_arm(worker_->get()) == UCS_OK;
    // While packets find no room in shared memory, UCX never permits sleep, and nothing signals
    // room.
    if (lent_ > 0) {
        sleep_briefly(true);
        return true;
    }
    const bool closes = !to_close_.empty() || !released_.empty();
    if (closes) sleep_briefly(false);
    if (!with_.shares_memory) return armed;
    // A peer that is killed or stopped between writing its word and signaling it wakes nobody; one
    // halfway through writing keeps UCX from ever permitting sleep.
    if (!armed && ++idle_looks_ < enough_idle_looks) return false;
    if (!armed) doubts_queue_ = !is_stuck_;
    if (!all_.empty() && !closes) sleep_briefly(false);
    return true;
}

// ---- endpoints

ucx_carrier::ucx_carrier(introducer by, std::unique_ptr<ucx_worker> worker, setup with)
    : introduced_carrier(std::move(by)), worker_(std::move(worker)), with_(std::move(with)) {
    listen_for(packet_id, &on_packet);
    listen_for(count_id, &on_count);
    sleep_also_on(worker_->event_fd());
    sleep_briefly(true);
    own_name_ = worker_->name();
}

void ucx_carrier::listen_for(unsigned id, ucp_am_recv_callback_t heard) {
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                         UCP_AM_HANDLER_PARAM_FIELD_ARG | UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
    handler.id = id;
    handler.cb = heard;
    handler.arg = this;
    handler.flags = UCP_AM_FLAG_WHOLE_MSG;
    if (ucs_status_t how = ucp_worker_set_am_recv_handler(worker_->get(), &handler); how != UCS_OK)
        throw error(
            from_ucx(how, errc::unsupported),
            std::string("UCX cannot set the active message handler: ") + ucs_status_string(how));
}

ucx_carrier::~ucx_carrier() {
    const auto until = std::chrono::steady_clock::now() + limits::flush_limit;
    while (!released_.empty() && std::chrono::steady_clock::now() < until) {
        ucp_worker_progress(worker_->get());
        tend_links();
    }
    end_introductions();
    // Without memory for it, UCX closes the others with its worker.
    while (!ends_.empty() && has_spare_memory(closing_bytes)) {
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
    for (auto* list : {&to_close_, &uncounted_, &all_})
        if (list->capacity() < count) list->reserve(2 * count);
    if (released_.capacity() < count) released_.reserve(2 * count);
    links_ = count;
    all_.push_back(made.get());
    return made;
}

bool ucx_carrier::has_room_for_connection() noexcept {
    return has_spare_memory(connection_bytes) && has_spare_descriptors<connection_descriptors>();
}

const_bytes ucx_carrier::own_name(const introduced_link& link) const noexcept {
    if (is_stuck_) return {};
    // A caller who has our name has UCX connect to us, at once and not when we open our path.
    const auto& introduced = static_cast<const ucx_link&>(link);
    if (!introduced.was_accepted() || has_room_for_connection()) return own_name_;
    say_not_connected(introduced, UCS_ERR_NO_MEMORY);
    return {};
}

status ucx_carrier::open_path(introduced_link& link, const_bytes name) noexcept try {
    auto& one = static_cast<ucx_link&>(link);
    if (name.empty()) return {errc::disconnected, EPROTO};
    if (is_stuck_) return {errc::disconnected, UCS_ERR_CONNECTION_RESET};
    if (!has_room_for_connection()) {
        say_not_connected(one, UCS_ERR_NO_MEMORY);
        return {errc::no_memory, ENOMEM};
    }
    if (!with_.between_hosts && !is_on_this_host(one)) return {errc::unreachable};
    const status how = attach(one, name);
    if (how.ok() && with_.shares_memory) send_count(one, not_inline);
    return how;
} catch (const std::bad_alloc&) {
    return {errc::no_memory, ENOMEM};
}

/// Logs why there is no connection, though the peer's tcp port was reached.
void ucx_carrier::say_not_connected(const ucx_link& link, ucs_status_t why) const noexcept try {
    std::string_view what =
        "a peer was reached over tcp, but not at its UCX addresses: check for a firewall or "
        "network address translation in between";
    if (is_stuck_)
        what = "a peer cannot be reached any more, as this port is unusable";
    else if (from_ucx(why) == errc::no_memory)
        what =
            "a peer cannot be reached, as UCX has no memory or file descriptors for it: raise the "
            "limits (ulimit -v, ulimit -n)";
    else if (why == UCS_ERR_TIMED_OUT)
        what =
            "a peer was reached over tcp, but did not answer over UCX within the silence limit: it "
            "stands still, or had no memory or file descriptors to connect (ulimit -v, ulimit -n)";
    else if (why == UCS_ERR_SHMEM_SEGMENT)
        what =
            "a peer was reached over tcp, but not its shared memory: check that it runs in the "
            "same container, and as the same user";
    limited_log(log_level::warn, "ucx", what,
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
        say_not_connected(link, how);
        return from_ucx(how, errc::unreachable);
    }
    link.end_ = made.get();
    link.opened_at_ = clock::steady().now();
    awaits_answers_ = with_.shares_memory;  // Else nothing comes until the other end sends.
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
    std::erase(all_, one);
    std::erase(uncounted_, one);
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
    say_not_connected(*end.link, end.why);
    const status why = from_ucx(end.why, errc::unreachable);
    lost(*end.link, why == errc::no_memory || is_stuck_ ? why : status{errc::unreachable, end.why});
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
    const bool may_close = !to_close_.empty() && has_spare_memory(closing_bytes);
    while (!to_close_.empty() && may_close) {
        ucx_link* one = to_close_.back();
        to_close_.pop_back();
        part(*one);
    }
    for (std::size_t i = 0; i < released_.size();) {
        ucx_link& one = *released_[i];
        if (one.end_ != nullptr && one.flushing_ != nullptr &&
            (one.end_->failed || is_over(one.flushing_)) && has_spare_memory(closing_bytes))
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
