#include "conformance/faulty_port.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <string>

#include <sys/eventfd.h>

namespace amalgam::conformance {
namespace {

constexpr std::array<std::string_view, static_cast<std::size_t>(fault::last_of_all)> names{
    "none",
    "drops_a_message",
    "doubles_a_message",
    "swaps_two_messages",
    "flips_a_bit",
    "shortens_a_message",
    "forgets_last_piece",
    "mixes_tags",
    "delivers_expected_to_sink",
    "completes_twice",
    "completes_inside_post",
    "forgets_canceled",
    "writes_after_cancel",
    "says_ok_on_failure",
    "counts_bytes_on_failure",
    "miscounts_open",
    "exceeds_budget",
    "forgets_pending_at_end",
    "accepts_any_secret",
    "accepts_any_rights",
    "keeps_closed_regions",
    "ignores_offset",
    "drops_a_notice",
    "adds_twice",
    "tells_loss_twice",
    "never_tells_loss",
    "reuses_incarnation",
    "never_wakes",
    "always_wakes"};

/// All keys handed out by faulty ports, by port and region: a fault that skips a check looks here.
std::map<std::pair<std::uint64_t, std::uint64_t>, remote_key>& known_keys() {
    static std::map<std::pair<std::uint64_t, std::uint64_t>, remote_key> all;
    return all;
}

constexpr std::string_view scheme_inside = "loop://";
constexpr std::string_view scheme_outside = "faulty://";

/// An address with the other scheme; other addresses unchanged.
std::string with_scheme(std::string_view address, std::string_view now, std::string_view then) {
    if (address.substr(0, now.size()) != now) return std::string(address);
    return std::string(then) + std::string(address.substr(now.size()));
}

// One in this many messages is damaged; the suite's greetings come before.
constexpr std::uint64_t every = 7;

}  // namespace

std::string_view name(fault which) noexcept {
    return names[static_cast<std::size_t>(which)];
}

/// Stands in for the caller's completion at the inner port.
struct faulty_port::relay : completion {
    relay(faulty_port& at_, completion& outer_)
        : completion([](completion& self, status what, std::size_t bytes) noexcept {
              auto& me = static_cast<relay&>(self);
              me.at.ended(me, what, bytes);
          }),
          at(at_),
          outer(&outer_) {}
    faulty_port& at;
    completion* outer;  ///< nullptr once the caller was told.
};

faulty_port::faulty_port(std::unique_ptr<port> inside, fault which)
    : which_(which), inside_(std::move(inside)), can_(inside_->can()) {
    can_.transport = "faulty";
    if (which_ == fault::never_wakes) handle_.reset(::eventfd(0, EFD_CLOEXEC));
    if (which_ == fault::always_wakes) handle_.reset(::eventfd(1, EFD_CLOEXEC));
}

faulty_port::~faulty_port() {
    ending_ = true;
    regions_.clear();
    inside_.reset();
}

std::uint64_t faulty_port::incarnation() const noexcept {
    return which_ == fault::reuses_incarnation ? 12345 : inside_->incarnation();
}

result<peer_id> faulty_port::lookup(std::string_view address) noexcept {
    return inside_->lookup(with_scheme(address, scheme_outside, scheme_inside));
}

std::string faulty_port::address() const {
    return with_scheme(inside_->address(), scheme_inside, scheme_outside);
}

std::string faulty_port::peer_address(peer_id peer) const {
    return with_scheme(inside_->peer_address(peer), scheme_inside, scheme_outside);
}

void faulty_port::set_sink(message_sink* sink) noexcept {
    sink_ = sink;
    inside_->set_sink(sink != nullptr ? this : nullptr);
}

// ---- operations

template <typename Post>
posted faulty_port::relayed(completion& outer, Post post) noexcept {
    auto made = std::make_unique<relay>(*this, outer);
    posted how = post(*made);
    if (how == posted::done && which_ == fault::completes_inside_post) {
        outer.finish({}, 0);
        return posted::pending;
    }
    if (how == posted::pending) relays_[&outer] = std::move(made);
    return how;
}

gather faulty_port::without_last(gather from) noexcept {
    bool forgets = which_ == fault::forgets_last_piece && from.size() > 1;
    return from.first(from.size() - (forgets ? 1 : 0));
}

remote_key faulty_port::mended(const remote_key& key) const {
    auto known = known_keys().find({key.incarnation, key.region});
    if (known == known_keys().end()) return key;
    remote_key right = key;
    if (which_ == fault::accepts_any_secret) right.secret = known->second.secret;
    if (which_ == fault::accepts_any_rights) right.rights = known->second.rights;
    if (which_ == fault::reuses_incarnation) right = known->second;
    return right;
}

posted faulty_port::post_send(peer_id to, std::uint64_t tag, gather from,
                              completion& on_done) noexcept {
    return relayed(on_done,
                   [&](relay& r) { return inside_->post_send(to, tag, without_last(from), r); });
}

posted faulty_port::post_send_expected(peer_id to, std::uint64_t tag, gather from,
                                       completion& on_done) noexcept {
    if (which_ == fault::delivers_expected_to_sink) return post_send(to, tag, from, on_done);
    std::uint64_t sent = which_ == fault::mixes_tags ? tag & 1 : tag;
    return relayed(on_done,
                   [&](relay& r) { return inside_->post_send_expected(to, sent, from, r); });
}

posted faulty_port::post_receive(peer_id from, std::uint64_t tag, mutable_bytes into,
                                 completion& on_done) noexcept {
    std::uint64_t asked = which_ == fault::mixes_tags ? tag & 1 : tag;
    return relayed(on_done, [&](relay& r) { return inside_->post_receive(from, asked, into, r); });
}

posted faulty_port::post_put(peer_id to, gather from, const remote_key& key, std::uint64_t offset,
                             completion& on_done) noexcept {
    std::uint64_t at = which_ == fault::ignores_offset ? 0 : offset;
    return relayed(on_done,
                   [&](relay& r) { return inside_->post_put(to, from, mended(key), at, r); });
}

posted faulty_port::post_get(peer_id from, scatter into, const remote_key& key,
                             std::uint64_t offset, completion& on_done) noexcept {
    return relayed(on_done,
                   [&](relay& r) { return inside_->post_get(from, into, mended(key), offset, r); });
}

posted faulty_port::post_put_notify(peer_id to, gather from, const remote_key& key,
                                    std::uint64_t offset, std::uint64_t notice,
                                    completion& on_done) noexcept {
    return relayed(on_done, [&](relay& r) {
        return inside_->post_put_notify(to, from, mended(key), offset, notice, r);
    });
}

posted faulty_port::post_fetch_add(peer_id to, const remote_key& key, std::uint64_t offset,
                                   std::uint64_t add, std::uint64_t* old,
                                   completion& on_done) noexcept {
    const std::uint64_t added = which_ == fault::adds_twice ? 2 * add : add;
    return relayed(on_done, [&](relay& r) {
        return inside_->post_fetch_add(to, mended(key), offset, added, old, r);
    });
}

posted faulty_port::post_compare_swap(peer_id to, const remote_key& key, std::uint64_t offset,
                                      std::uint64_t expected, std::uint64_t desired,
                                      std::uint64_t* old, completion& on_done) noexcept {
    return relayed(on_done, [&](relay& r) {
        return inside_->post_compare_swap(to, mended(key), offset, expected, desired, old, r);
    });
}

void faulty_port::cancel(completion& op) noexcept {
    auto found = relays_.find(&op);
    if (found == relays_.end()) return;
    if (which_ == fault::writes_after_cancel) {
        orphans_.push_back(std::move(found->second));
        orphans_.back()->outer = nullptr;
        relays_.erase(found);
        op.finish({errc::canceled}, 0);
        return;
    }
    inside_->cancel(*found->second);
}

void faulty_port::ended(relay& which, status what, std::size_t bytes) noexcept {
    completion* outer = which.outer;
    if (outer == nullptr) return;
    if (which_ == fault::forgets_canceled && what == errc::canceled) return;
    if (which_ == fault::forgets_pending_at_end && ending_) return;
    if (which_ == fault::says_ok_on_failure && !ending_) what = {};
    if (which_ == fault::counts_bytes_on_failure && !what.ok()) bytes = 1;
    auto keeps_it_alive = std::move(relays_[outer]);
    relays_.erase(outer);
    if (which_ == fault::completes_twice) outer->finish(what, bytes);
    outer->finish(what, bytes);
}

std::size_t faulty_port::open_operations() const noexcept {
    return inside_->open_operations() + (which_ == fault::miscounts_open ? 1 : 0);
}

// ---- memory

result<region> faulty_port::open_region(scatter segments, access rights) noexcept {
    bool wide = which_ == fault::accepts_any_rights;
    auto opened = inside_->open_region(segments, wide ? access::read_write : rights);
    if (!opened) return opened;
    remote_key key = opened->key();
    known_keys()[{incarnation(), key.region}] = key;
    key.rights = rights;
    key.incarnation = incarnation();
    regions_.emplace(++last_region_, std::move(opened).value());
    return region(*this, last_region_, key);
}

void faulty_port::close_region(std::uint64_t id) noexcept {
    if (which_ != fault::keeps_closed_regions) regions_.erase(id);
}

// ---- arrivals

std::size_t faulty_port::progress(std::size_t budget) noexcept {
    return inside_->progress(which_ == fault::exceeds_budget ? 64 : budget);
}

int faulty_port::wait_handle() const noexcept {
    return handle_ ? handle_.get() : inside_->wait_handle();
}

void faulty_port::pass_on(const message& got, const_bytes bytes) {
    message shown(got.from(), got.tag(), bytes, nullptr, pool_);
    if (sink_ != nullptr) sink_->on_message(shown);
}

void faulty_port::on_message(message& got) noexcept {
    bool this_one = ++messages_ % every == 0;
    const_bytes bytes = got.bytes();
    std::vector<std::byte> copy(bytes.begin(), bytes.end());
    if (this_one && which_ == fault::drops_a_message) return;
    if (this_one && which_ == fault::flips_a_bit && !copy.empty()) copy.back() ^= std::byte{1};
    if (this_one && which_ == fault::shortens_a_message && !copy.empty()) copy.pop_back();
    if (this_one && which_ == fault::swaps_two_messages) {
        held_.emplace(got, std::move(copy));
        return;
    }
    pass_on(got, copy);
    if (this_one && which_ == fault::doubles_a_message) pass_on(got, copy);
    if (auto late = std::exchange(held_, std::nullopt)) pass_on(late->first, late->second);
}

void faulty_port::on_put(const put_notice& told) noexcept {
    const bool drops = ++notices_ % every == 0 && which_ == fault::drops_a_notice;
    if (sink_ != nullptr && !drops) sink_->on_put(told);
}

void faulty_port::on_peer_down(peer_id peer, status why) noexcept {
    if (sink_ == nullptr || which_ == fault::never_tells_loss) return;
    sink_->on_peer_down(peer, why);
    if (which_ == fault::tells_loss_twice) sink_->on_peer_down(peer, why);
}

result<std::unique_ptr<port>> faulty_transport::open(const uri& where,
                                                     const port_options& options) const {
    auto inside = native_.open(std::string(scheme_inside) + where.name, options);
    if (!inside) return inside;
    const char* asked = std::getenv("AMALGAM_FAULT");
    auto found = std::find(names.begin(), names.end(), asked != nullptr ? asked : "none");
    if (found == names.end()) return {errc::invalid, "AMALGAM_FAULT names no fault"};
    auto which = static_cast<fault>(found - names.begin());
    return std::unique_ptr<port>(std::make_unique<faulty_port>(std::move(inside).value(), which));
}

}  // namespace amalgam::conformance
