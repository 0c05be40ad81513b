#include "fabric/transports/ucx/ucx_carrier.hpp"

#include <algorithm>
#include <cerrno>
#include <new>
#include <optional>
#include <utility>

#include <amalgam/core/log.hpp>
#include <amalgam/core/uri.hpp>

#include "fabric/transports/tcp/interfaces.hpp"
#include "fabric/transports/tcp/resolver.hpp"
#include "fabric/transports/tcp/socket_address.hpp"

namespace amalgam::detail {
namespace {

constexpr unsigned packet_id = 1;  // Of our active messages.

// Packets on their way when a port ends get this long; then their endpoints are cut off.
constexpr std::chrono::milliseconds last_words{200};

}  // namespace

// ---- sending

posted ucx_link::send(packet& one) noexcept {
    if (!is_open() || end_ == nullptr || end_->failed || asked_to_close_) return posted::full;
    ucp_request_param_t how{};
    how.op_attr_mask =
        UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    how.flags = UCP_AM_SEND_FLAG_EAGER;
    // The first packet shows the other end which of its callers this is.
    if (!introduced_ && !was_accepted() && carrier_->with_.between_hosts)
        how.flags |= UCP_AM_SEND_FLAG_REPLY;
    how.cb.send = &ucx_carrier::on_sent;
    how.user_data = &one;
    one.carrier_words[0] = reinterpret_cast<std::uintptr_t>(this);
    void* const request = ucp_am_send_nbx(end_->endpoint, packet_id, &header_, sizeof header_,
                                          one.data, one.bytes, &how);
    if (UCS_PTR_IS_ERR(request)) {
        ucx_carrier::on_failure(end_, end_->endpoint, UCS_PTR_STATUS(request));
        return posted::full;
    }
    introduced_ = true;
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
    const bool names_sender = (how->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) != 0;
    carrier.arriving_ = names_sender ? how->reply_ep : nullptr;
    carrier.arrived(*link, {static_cast<const std::byte*>(data), bytes});
    return UCS_OK;
}

std::size_t ucx_carrier::move_packets(std::size_t budget) noexcept {
    came_ = 0;
    while (ucp_worker_progress(worker_->get()) != 0 && came_ < budget) {
    }
    if (needs_tending_ || !released_.empty()) tend_links();
    return came_;
}

bool ucx_carrier::arm_paths() noexcept {
    if (needs_tending_) return false;
    const bool armed = ucp_worker_arm(worker_->get()) == UCS_OK;
    // With packets that find no room in shared memory UCX is never ready for sleep, and nothing
    // tells of room.
    if (lent_ > 0) sleep_briefly(true);
    return armed || lent_ > 0;
}

// ---- endpoints

ucx_carrier::ucx_carrier(std::unique_ptr<port> tcp, std::unique_ptr<ucx_worker> worker, setup with)
    : introduced_carrier(std::move(tcp), with.scheme),
      worker_(std::move(worker)),
      with_(std::move(with)) {
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                         UCP_AM_HANDLER_PARAM_FIELD_ARG | UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
    handler.id = packet_id;
    handler.cb = &on_packet;
    handler.arg = this;
    handler.flags = UCP_AM_FLAG_WHOLE_MSG;
    if (ucs_status_t how = ucp_worker_set_am_recv_handler(worker_->get(), &handler); how != UCS_OK)
        throw error(from_ucx(how, errc::unsupported),
                    std::string("UCX takes no handler of messages: ") + ucs_status_string(how));
    sleep_also_on(worker_->event_fd());
    sleep_briefly(true);
    if (!with_.between_hosts) {
        own_name_ = worker_->name();
        return;
    }
    own_name_.resize(sizeof(std::uint16_t));
    if (const std::string at = address(); !at.empty()) listen(uri::parse(at).host);
}

/// Callers of UCX's own come here, at a port number that the greeting tells.
void ucx_carrier::listen(const std::string& host) {
    const auto at = socket_address::numeric(host, 0).value();
    ucp_listener_params_t params{};
    params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
    params.sockaddr.addr = at.data();
    params.sockaddr.addrlen = at.bytes();
    params.conn_handler.cb = &on_caller;
    params.conn_handler.arg = this;
    ucs_status_t how = ucp_listener_create(worker_->get(), &params, &listener_);
    ucp_listener_attr_t found{};
    found.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
    if (how == UCS_OK) how = ucp_listener_query(listener_, &found);
    if (how != UCS_OK)
        throw error(from_ucx(how, errc::unsupported),
                    std::string("UCX cannot listen at ") + host + ": " + ucs_status_string(how));
    const socket_address got(reinterpret_cast<const sockaddr&>(found.sockaddr),
                             sizeof found.sockaddr);
    store_le(own_name_.data(), got.port());
}

void ucx_carrier::on_caller(ucp_conn_request_h caller, void* self) noexcept {
    auto& carrier = *static_cast<ucx_carrier*>(self);
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST;
    params.conn_request = caller;
    // Without memory UCX has dropped it, and the caller will hear of it.
    (void)carrier.make_end(params);
}

/// An endpoint as `params` say; nullptr: UCX has none to give, or there is no memory.
ucx_end* ucx_carrier::make_end(ucp_ep_params_t& params) noexcept try {
    auto made = std::make_unique<ucx_end>();
    made->carrier = this;
    ends_.reserve(ends_.size() + 1);
    failed_.reserve(ends_.capacity());
    params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler.cb = &on_failure;
    params.err_handler.arg = made.get();
    if (ucp_ep_create(worker_->get(), &params, &made->endpoint) != UCS_OK) return nullptr;
    ends_.push_back(std::move(made));
    return ends_.back().get();
} catch (const std::bad_alloc&) {
    return nullptr;
}

ucx_carrier::~ucx_carrier() {
    const auto until = std::chrono::steady_clock::now() + last_words;
    while (!released_.empty() && std::chrono::steady_clock::now() < until) {
        ucp_worker_progress(worker_->get());
        tend_links();
    }
    end_introductions();
    if (listener_ != nullptr) ucp_listener_destroy(listener_);
    while (!ends_.empty()) {
        ucx_end* one = ends_.back().get();
        void* closing = nullptr;
        if (one->link != nullptr) one->link->end_ = nullptr;
        cut_off(one, closing);
        if (closing != nullptr) closing_strangers_.push_back(closing);
    }
    for (int i = 0; i < 1000 && (!released_.empty() || !closing_strangers_.empty()); ++i) {
        ucp_worker_progress(worker_->get());
        tend_links();
    }
    worker_.reset();
}

std::unique_ptr<introduced_link> ucx_carrier::make_link() {
    auto made = std::make_unique<ucx_link>();
    made->carrier_ = this;
    // Room for all, so that noting what happens to one cannot fail.
    const std::size_t count = links_ + 1;
    if (to_close_.capacity() < count) to_close_.reserve(2 * count);
    if (released_.capacity() < count) released_.reserve(2 * count);
    links_ = count;
    return made;
}

status ucx_carrier::open_path(introduced_link& link, const_bytes name) noexcept {
    auto& one = static_cast<ucx_link&>(link);
    one.header_ = 0;
    store_le(&one.header_, one.their_id());
    if (!with_.between_hosts) return attach(one, name);
    if (!one.was_accepted()) return call(one, name);
    for (auto& each : ends_) {
        if (each->endpoint != arriving_ || each->link != nullptr) continue;
        each->link = &one;
        one.end_ = each.get();
        return {};
    }
    return {errc::disconnected, UCS_ERR_NOT_CONNECTED};
}

/// The host where the other end was met, with another port number.
result<socket_address> ucx_carrier::place_of(const ucx_link& link, std::uint16_t number) const {
    const std::string host = uri::parse(met_at(link)).host;
    if (const auto numeric = socket_address::numeric(host, number)) return *numeric;
    const auto found = resolve(host, number);
    if (!found) return found.why();
    return found->front();
}

status ucx_carrier::go_to(ucx_link& link, ucp_ep_params_t& params) noexcept {
    link.end_ = make_end(params);
    if (link.end_ == nullptr) return {errc::unreachable, UCS_ERR_UNREACHABLE};
    link.end_->link = &link;
    return {};
}

/// Goes to the worker of that name: on this host, without a listener, which would need UCX's tcp
/// and a system call of it in every round.
status ucx_carrier::attach(ucx_link& link, const_bytes name) noexcept try {
    const auto met = place_of(link, 0);
    if (!met) return met.code();
    if (!is_own(interface_addresses(), *met)) return {errc::unreachable};
    if (name.empty()) return {errc::disconnected, EPROTO};
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    params.address = reinterpret_cast<const ucp_address_t*>(name.data());
    return go_to(link, params);
} catch (const std::bad_alloc&) {
    return {errc::no_memory, ENOMEM};
}

/// Calls the listener whose port number was told, at the host that was looked up.
status ucx_carrier::call(ucx_link& link, const_bytes name) noexcept try {
    if (name.size() != sizeof(std::uint16_t)) return {errc::disconnected, EPROTO};
    const auto to = place_of(link, load_le<std::uint16_t>(name.data()));
    if (!to) return to.code();
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR;
    params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
    params.sockaddr.addr = to->data();
    params.sockaddr.addrlen = to->bytes();
    return go_to(link, params);
} catch (const std::bad_alloc&) {
    return {errc::no_memory, ENOMEM};
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

/// Whether a request of UCX is over; frees it then.
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

/// Ends an endpoint whose packets have left, or never will.
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

/// Begins to end an endpoint: what it was given leaves first.
void ucx_carrier::part(ucx_link& link) noexcept {
    if (link.end_ == nullptr) return;
    if (link.end_->failed || link.dead_) return cut_off(link.end_, link.closing_);
    ucp_request_param_t how{};
    link.flushing_ = ucp_ep_flush_nbx(link.end_->endpoint, &how);
    if (link.flushing_ == nullptr) cut_off(link.end_, link.closing_);
}

/// What may not be done inside of UCX's callbacks.
void ucx_carrier::tend_links() noexcept {
    needs_tending_ = false;
    while (!failed_.empty()) {
        ucx_end* one = failed_.back();
        failed_.pop_back();
        log(log_level::info, "ucx", "a connection failed",
            {{"reason", ucs_status_string(one->why)}});
        if (one->link != nullptr) {
            lost(*one->link, from_ucx(one->why));
            continue;
        }
        void* closing = nullptr;
        cut_off(one, closing);
        if (closing != nullptr && !is_over(closing)) closing_strangers_.push_back(closing);
    }
    std::erase_if(closing_strangers_, [](void*& closing) { return is_over(closing); });
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
