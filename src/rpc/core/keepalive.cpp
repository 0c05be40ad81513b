#include "rpc/core/keepalive.hpp"

#include <cstdint>
#include <new>

#include <amalgam/core/limited_log.hpp>

#include "rpc/call/pending_call.hpp"

namespace amalgam::detail {

namespace {

/// A peer is silent when so many looks in a row found no answer. Looks are counted instead of time:
/// when this process was stopped itself, the answer may be waiting to be read.
constexpr unsigned looks_per_timeout = 4;

/// Bytes that have moved in transfers with that peer: it is alive while this changes.
std::size_t moved_with(const peer_state& there) noexcept {
    std::size_t sum = 0;
    for (const transfer_record* each = there.transfers; each != nullptr;
         each = transfer_table::next_of(*each))
        sum += each->moved() + 1;
    return sum;
}

}  // namespace

/// One ping under way. Deletes itself when it has been answered, or the connection has ended.
class keepalive::ping final : public call_record {
public:
    ping(keepalive& whose, const call_target& target, peer_state& there)
        : call_record(target), whose_(whose), to_(target.to), moved_(moved_with(there)) {
        next_ = whose.first_;
        if (next_ != nullptr) next_->link_ = &next_;
        whose.first_ = this;
        link_ = &whose.first_;
        write(std::uint64_t{0});
    }
    ~ping() override {
        *link_ = next_;
        if (next_ != nullptr) next_->link_ = link_;
    }

    /// This may be gone afterwards.
    void begin() noexcept {
        look_.whose = this;
        look_later();
        submit();
    }
    void stop() noexcept { whose_.calls_.cancel_waited(pending()); }
    bool is_to(const peer& whom) const noexcept { return to_ == whom; }
    ping* next() const noexcept { return next_; }

private:
    struct look_timer : timer {
        using timer::timer;
        ping* whose = nullptr;
    };

    void look_later() noexcept {
        look_.arm(whose_.context_.now() + whose_.how_.timeout / looks_per_timeout);
    }
    void look() noexcept {
        peer_state* const there = whose_.peers_.find(to_);
        if (there == nullptr) return;  // The call ends, too.
        const std::size_t moved = moved_with(*there);
        if (moved != moved_) looks_ = 0;
        moved_ = moved;
        if (++looks_ >= looks_per_timeout) return whose_.give_up(*there);
        look_later();
    }

    void decode(archive_reader&) override {}
    void over() noexcept override { delete this; }

    keepalive& whose_;
    const peer to_;
    look_timer look_{whose_.context_.stream(),
                     [](timer& self) noexcept { static_cast<look_timer&>(self).whose->look(); }};
    unsigned looks_ = 0;
    std::size_t moved_;
    ping* next_;
    ping** link_;
};

keepalive::keepalive(engine_context& context, const keepalive_options& how, known_peers& peers,
                     peer_addresses& addresses, caller& calls, server& serves,
                     transfer_table& transfers, outbox& out, remote_procedures& procedures)
    : context_(context),
      how_(how),
      peers_(peers),
      addresses_(addresses),
      calls_(calls),
      server_(serves),
      transfers_(transfers),
      out_(out),
      what_(procedures.intern("amalgam.ping", signature_text<std::uint64_t(std::uint64_t)>())),
      round_(context.stream(), [](timer& self) noexcept {
          keepalive& mine = *static_cast<round_timer&>(self).whose;
          mine.round_armed_ = false;
          mine.ask_all();
      }) {
    round_.whose = this;
}

keepalive::~keepalive() = default;

void keepalive::close() noexcept {
    closed_ = true;
    round_.cancel();
    for (ping* each = first_; each != nullptr;) {
        ping* const next = each->next();  // A ping that stops here deletes itself.
        each->stop();
        each = next;
    }
}

void keepalive::arm_round() noexcept {
    round_armed_ = true;
    round_.arm(context_.now() + how_.interval);
}

bool keepalive::waits_for(const peer_state& there) noexcept {
    return there.pending_calls != 0 || there.transfers != nullptr || there.queued != 0;
}

void keepalive::ask_all() noexcept {
    if (closed_) return;
    peers_.for_each([this](peer_state& each) {
        if (waits_for(each)) ask(each);
    });
    server_.for_each_stream([this](const peer& caller) {
        if (peer_state* const there = peers_.find(caller)) ask(*there);
    });
    look();
}

void keepalive::ask(peer_state& there) noexcept {
    if (there.name.is_self()) return;
    for (const ping* each = first_; each != nullptr; each = each->next()) {
        if (each->is_to(there.name)) return;
    }
    call_target target;
    target.core = &context_.core();
    target.what = &what_;
    target.to = there.name;
    target.urgent = true;  // Before what is queued for it.
    try {
        (new ping(*this, target, there))->begin();
        counts_.pings.add();
    } catch (const std::bad_alloc&) {
        // The next round asks.
    }
}

void keepalive::give_up(peer_state& silent) noexcept {
    silent.unanswered = true;
    counts_.unanswered.add();
    try {
        limited_log(
            log_level::warn, "rpc", "disconnected a peer that did not answer a ping",
            {{"peer", addresses_.text_of(silent.name)}, {"milliseconds", how_.timeout.count()}});
    } catch (const std::bad_alloc&) {
        // Then without a log entry.
    }
    out_.cut_off(silent.name);
}

}  // namespace amalgam::detail
