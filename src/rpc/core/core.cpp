#include "rpc/core/core.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <mutex>
#include <new>
#include <utility>

#include <fmt/format.h>

#include <amalgam/core/detail/forks.hpp>
#include <amalgam/core/log.hpp>
#include <amalgam/core/uri.hpp>
#include <amalgam/rpc/interceptor.hpp>
#include <amalgam/tasks/ult.hpp>

#include "rpc/metrics/counter_metrics.hpp"
#include "rpc/metrics/port_metrics.hpp"

// Construction of an engine, and dispatch of messages. The end is in stop.cpp.

namespace amalgam::detail {

namespace {

/// Registry of engines that were given none. One per process, so that the machine is probed once,
/// and loop:// ports of different engines can connect.
const transport_registry& default_transports() {
    // Under a lock that fork() takes, too: a child would wait for ever for another thread's first
    // engine.
    static constinit std::mutex lock;
    static constinit fork_handlers handlers([] { lock.lock(); }, [] { lock.unlock(); },
                                            [] { lock.unlock(); });
    if (!handlers.watch()) throw std::bad_alloc();
    const std::lock_guard hold(lock);
    static const transport_registry installed = transport_registry::installed();
    return installed;
}

/// "?credentials=node7" or "?insecure=yes", where the URI has it: no address of a port tells.
std::string trust_in(const std::string& opened) {
    if (opened.find('?') == opened.npos) return {};
    const uri parsed = uri::parse(opened);
    for (const char* key : {"credentials", "insecure"})
        if (const auto value = parsed.option(key)) return fmt::format("?{}={}", key, *value);
    return {};
}

}  // namespace

engine_core::engine_core(engine& owner, endpoints where, engine_options options)
    : engine_context(*this),
      owner_(owner),
      options_(std::move(options)),
      settings_(options_),
      peers_(*this),
      outbox_(buffers_, std::max<std::size_t>(options_.max_queued, 1)),
      transfers_(*this, peers_, peer_addresses_, exposures_, options_.ports.silence_limit),
      caller_(*this, settings_, peers_, routes_, peer_addresses_, outbox_, loans_, procedures_,
              server_, *this),
      server_(*this, settings_, owner, peers_, peer_addresses_, outbox_, loans_, caller_, *this,
              options_),
      listeners_(std::make_shared<peer_listeners>(*this)) {
    if (options_.statistics)
        statistics_ = &counts_.emplace(options_.statistics->max_rows, peer_addresses_);
    open_ports(std::move(where));
    try {
        start_streams();
        expose_counters();
        enlist();
    } catch (...) {
        // The streams may already be polling the ports, and have answered peers.
        stop_streams();
        outbox_.close();
        throw;
    }
}

// Parts of an engine, for what users hold. In this file so that calls, which are compiled together
// with it, get theirs at the cost of an addition.
engine_context& context_of(engine_core& core) noexcept {
    return core;
}
caller& caller_of(engine_core& core) noexcept {
    return core.caller();
}
remote_procedures& procedures_of(engine_core& core) noexcept {
    return core.procedures();
}
transfer_table& transfers_of(engine_core& core) noexcept {
    return core.transfers();
}
loans& loans_of(engine_core& core) noexcept {
    return core.loans();
}
exposure_table& exposures_of(engine_core& core) noexcept {
    return core.exposures();
}
value_streams& value_streams_of(engine_core& core) noexcept {
    return core.value_streams();
}
route_table& routes_of(engine_core& core) noexcept {
    return core.routes();
}

core_reference::core_reference(engine_core& core) noexcept : kept_alive_(core) {
    core.add_reference();
}
core_reference::~core_reference() {
    kept_alive_.drop_reference();
}

engine_core::~engine_core() {
    delist();
    listeners_->forget_engine();
}

void engine_core::open_ports(endpoints where) {
    ports_ = std::move(where.ports);
    const std::size_t given = ports_.size();
    if (!where.uris.empty()) {
        const transport_registry& known =
            options_.transports == nullptr ? default_transports() : *options_.transports;
        for (const std::string& each : where.uris)
            ports_.push_back(std::move(known.open(each, options_.ports)).value());
    }
    if (std::count(ports_.begin(), ports_.end(), nullptr) != 0) {
        throw error(errc::invalid,
                    "an engine was given a null port; get one from a transport's open()");
    }
    if (ports_.empty()) {
        throw error(errc::invalid,
                    "an engine needs a port: give it a URI; example: tcp://127.0.0.1:0");
    }
    if (ports_.size() >= peer::self_port) {
        throw error(errc::invalid,
                    fmt::format("an engine cannot have {} ports, expected fewer than {}",
                                ports_.size(), peer::self_port));
    }
    driven_ = ports_.front()->can().driven;
    clock_ = driven_ ? &ports_.front()->time() : &clock::steady();
    if (driven_) driver_port_ = ports_.front().get();
    for (std::size_t i = 0; i < ports_.size(); ++i) {
        const auto& each = ports_[i];
        if (each->can().driven != driven_) {
            throw error(errc::invalid,
                        "ports in virtual time and in real time cannot share an engine: create one "
                        "engine for each");
        }
        port_addresses_.push_back(each->can().listens ? each->address() : std::string());
        if (each->can().listens) addresses_.push_back(port_addresses_.back());
        binds_keys_.push_back(binds_remote_keys(*each));
        uris_.push_back(each->can().listens ? each->address()
                                            : fmt::format("{}://", each->can().transport));
        if (i >= given) uris_.back() += trust_in(where.uris[i - given]);
    }
    outbox_.open(ports_);
    transfers_.open(ports_);
    self_ = peers_.meet(peer::self_port, self_link::id).name;
}

void engine_core::start_streams() {
    streams_.start(options_, driven_ ? clock_ : nullptr);
    turns_.open(stream());
    if (streams_.driven_by_caller()) {
        turns_.drives_here();
    } else {
        turns_.keep(kept_for_good);
    }
    driver_.emplace(*this, stream());
    for (std::size_t i = 0; i < ports_.size(); ++i) {
        port_link& link = links_.emplace_back(*this, static_cast<std::uint16_t>(i), *ports_[i]);
        ports_[i]->set_sink(&link);
    }
    for (port_link& each : links_)
        stream().add_poller(each);
    turns_.look_at(links_.front());
    if (links_.size() == 1) work_ = &links_.front().work();
    if (options_.keepalive.interval > options_.keepalive.interval.zero()) {
        keepalive_.emplace(*this, options_.keepalive, peers_, peer_addresses_, caller_, server_,
                           transfers_, outbox_, procedures_);
        stream().add_poller(*keepalive_);
    }
    for (const auto& each : ports_)
        each->attach_driver(&*driver_);
}

void engine_core::expose_counters() {
    const auto show = [this](const char* name, const owned_counter& number) {
        watches_.push_back(counters_.expose(name, [&number] { return number.value(); }));
    };
    show("rpc.calls", caller_.counts().calls);
    show("rpc.one_ways", caller_.counts().one_ways);
    show("rpc.one_ways_lost", caller_.counts().one_ways_lost);
    show("rpc.one_ways_refused", caller_.counts().refused);
    show("rpc.retried", caller_.counts().retried);
    show("rpc.failed", caller_.counts().failed);
    show("rpc.timed_out", caller_.counts().timed_out);
    show("rpc.late_replies", caller_.counts().late_replies);
    show("rpc.running", server_.counts().running);
    show("rpc.running_one_ways", server_.counts().one_ways);
    show("rpc.unread_bytes", outbox_.unread_bytes());
    show("rpc.lent", loans_.size());
    show("rpc.borrowed_bytes", loans_.borrowed_bytes());
    show("rpc.taken_back", loans_.taken_back());
    watches_.push_back(counters_.expose("rpc.reader_bytes", [this] {
        return static_cast<std::uint64_t>(value_streams_.reserved());
    }));
    show("rpc.served", server_.counts().served);
    show("rpc.refused", server_.counts().refused);
    show("rpc.overloaded", server_.counts().overloaded);
    show("rpc.denied", server_.counts().denied);
    show("rpc.cut_off", server_.counts().cut_off);
    show("rpc.canceled", server_.counts().canceled);
    show("rpc.transfers", transfers_.counts().begun);
    show("rpc.transfers_failed", transfers_.counts().failed);
    show("rpc.transferred_bytes", transfers_.counts().bytes);
    for (const auto& each : ports_) {  // Counters of the same name add up.
        const auto show_usage = [this, &each](const char* name, std::uint64_t port_usage::*what) {
            port_watches_.push_back(
                counters_.expose(name, [&each, what] { return each->usage().*what; }));
        };
        show_usage("ports.queued_bytes", &port_usage::queued_bytes);
        show_usage("ports.pooled_bytes", &port_usage::pooled_bytes);
        show_usage("ports.evicted", &port_usage::evicted);
    }
    counted_ = metrics_.add_group(
        [this](metric_writer& into) { write_counters(counters_.snapshot(), into); });
    port_numbers_ = metrics_.add_group([this](metric_writer& into) {
        for (std::size_t i = 0; i < ports_.size(); ++i)
            write_port(*ports_[i], port_addresses_[i], into);
    });
    show("rpc.malformed", malformed_);
    show("rpc.corrupt", corrupt_);
    show("rpc.peers_lost", peers_lost_);
    show("rpc.untold", outbox_.untold());
    if (!keepalive_) return;
    show("rpc.pings", keepalive_->counts().pings);
    show("rpc.pings_unanswered", keepalive_->counts().unanswered);
}

shared_block engine_core::allocate(std::size_t bytes) {
    if (ports_.empty()) throw error(errc::closed, why_closed());
    for (const std::unique_ptr<port>& each : ports_) {
        result<shared_block> block = each->allocate(bytes);
        if (!block) {
            throw error(block.code(),
                        block.sentence().empty()
                            ? fmt::format("cannot allocate a block of {} bytes", bytes)
                            : block.sentence());
        }
        if (block->is_shared() || each == ports_.back()) return std::move(*block);
    }
    return {};
}

// Each of these ends in the call of the next, so that none has registers to restore: a message
// costs little more than looking at it.
void engine_core::on_message(std::uint16_t port, message& arrived) noexcept {
    peer_state* const from = peers_.find_recent(port, arrived.from());
    if (from == nullptr) [[unlikely]]  // It was not heard, or not lately.
        return on_first_message(port, arrived);
    on_message_from(*from, arrived);
}

[[gnu::noinline]] void engine_core::on_first_message(std::uint16_t port,
                                                     message& arrived) noexcept {
    peer_state* from = peers_.find(port, arrived.from());
    if (from == nullptr) from = meet(port, arrived.from());
    if (from == nullptr) return;
    if (!from->heard) outbox_.heard_from(*from);
    on_message_from(*from, arrived);
}

[[gnu::always_inline]] inline void engine_core::on_message_from(peer_state& from,
                                                                message& arrived) noexcept {
    // The ordinary call, its answer, and mail are known by their first word. Those who take them
    // turn to on_any() if there is more to them.
    const const_bytes bytes = arrived.bytes();
    if (bytes.size() < reply_bytes) [[unlikely]]
        return on_any(from, arrived);
    const auto head = load_le<std::uint64_t>(bytes.data());
    if (plain_head::is_reply(head)) return caller_.on_plain_reply(from, arrived, head);
    if (plain_head::is_request(head) || plain_head::is_one_way(head))
        return server_.on_plain_request(from, arrived, head);
    if (plain_head::is_mail(head)) return on_mail(from, bytes.subspan(mail_bytes));
    on_any(from, arrived);
}

// Out of line, like the next three, so that on_message() saves few registers.
[[gnu::noinline]] void engine_core::on_any(peer_state& from, message& arrived) noexcept {
    parsed_message parsed;
    if (const char* wrong = parse(arrived.bytes(), parsed)) [[unlikely]] {
        on_malformed(from, arrived.tag(), parsed, wrong);
    } else if (is_request(parsed.kind)) {
        server_.on_request(from, arrived, parsed);
    } else if (parsed.kind == message_kind::reply) {
        caller_.on_reply(from, arrived.tag(), parsed);
    } else if (parsed.kind == message_kind::mail) {
        on_mail(from, parsed.body);
    } else {
        on_other(from, arrived.tag(), parsed);
    }
}

[[gnu::noinline]] peer_state* engine_core::meet(std::uint16_t port, peer_id who) noexcept {
    try {
        return &peers_.meet(port, who);
    } catch (const std::bad_alloc&) {
        outbox_.end_untold(port, who);  // A peer waiting for an answer must not wait forever.
        return nullptr;
    }
}

[[gnu::noinline]] void engine_core::on_malformed(peer_state& from, std::uint64_t tag,
                                                 const parsed_message& parsed,
                                                 const char* wrong) noexcept {
    (parsed.corrupt ? corrupt_ : malformed_).add();
    if (parsed.kind == message_kind::request && tag != 0) {
        const errc why = parsed.corrupt ? errc::corrupt : errc::mismatch;
        server_.refuse(from, tag, parsed, {why}, wrong);
    } else if (parsed.corrupt && parsed.kind != message_kind::one_way) {
        caller_.on_damaged(from, tag);
    } else if (parsed.kind == message_kind::reply || parsed.kind == message_kind::item) {
        caller_.on_malformed(from, tag, wrong);
    }
}

[[gnu::noinline]] void engine_core::on_other(peer_state& from, std::uint64_t tag,
                                             const parsed_message& parsed) noexcept {
    switch (parsed.kind) {
        case message_kind::cancel:
            return server_.on_cancel(from, tag);
        case message_kind::verdict:
            return caller_.on_verdict(from, parsed);
        case message_kind::release:
            return on_release(from, parsed.body);
        case message_kind::item:
            return caller_.on_item(from, tag, parsed);
        case message_kind::credit:
            return server_.on_credit(from, tag, parsed.items);
        default:
            return;
    }
}

identity engine_core::who(const peer& which) const {
    if (which.is_self()) return own_process();
    return which.port() < ports_.size() ? ports_[which.port()]->who(which.id()) : identity{};
}

bool engine_core::has_key(const key_fingerprint& key) const {
    return std::any_of(ports_.begin(), ports_.end(), [&](const auto& each) {
        const identity own = each->self();
        return own.kind == identity_kind::certificate && own.key == key;
    });
}

void engine_core::on_mail(peer_state& from, const_bytes content) noexcept {
    if (mail_ == nullptr || !server_.takes_mail(from)) return;
    reads_mail_ = true;
    mail_->on_mail(from.name, content);
    reads_mail_ = false;
    if (read_mail_ != nullptr) [[unlikely]]
        read_mail_.reset();
}

void engine_core::accept_mail(std::shared_ptr<mail_sink> sink) noexcept {
    mail_.swap(sink);
    if (reads_mail_ && read_mail_ == nullptr) read_mail_ = std::move(sink);
}

void engine_core::on_peer_down(std::uint16_t port, peer_id id, status why) noexcept {
    peer_state* const gone = peers_.find(port, id);
    if (gone == nullptr) return;
    peers_lost_.add();
    if (why == errc::closed) why = {errc::disconnected};  // We disconnected it; nobody stopped.
    peer_addresses_.keep_lost(*gone, why);
    const auto engine = gone->introduced ? routes_.lose(*gone) : nullptr;
    server_.on_peer_down(*gone);
    caller_.on_peer_down(*gone, why);
    transfers_.on_peer_down(*gone, why);
    outbox_.drop(*gone, why);
    if (engine == nullptr) {
        forget_name(gone->name, gone->untold, why);
    } else if (engine->routes.empty()) {
        for (const known_engine::name& each : engine->lost)
            forget_name(each.who, each.untold, why);
    } else if (const auto oldest = routes_.drop_oldest(*engine)) {
        forget_name(oldest->who, oldest->untold, why);
    }
    peers_.forget(*gone);
    look_whether_quiet();
}

/// No path is left to this name.
void engine_core::forget_name(const peer& gone, bool untold, status why) noexcept {
    peer_addresses_.lost().give_up(gone);
    loans_.on_peer_down(gone);
    if (!untold) listeners_->tell(gone, why);
}

}  // namespace amalgam::detail
